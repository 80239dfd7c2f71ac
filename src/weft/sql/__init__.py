"""Texts and the builder become queries, and errors point at what is wrong."""
