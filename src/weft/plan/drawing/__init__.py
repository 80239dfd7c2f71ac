"""Graphs as pictures: where every part goes (`layout.py`), and the picture as SVG (`svg.py`)."""
