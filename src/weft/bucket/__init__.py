"""Sorted, indexed, immutable runs of tuples: the unit of data (design, D1 and D4)."""
