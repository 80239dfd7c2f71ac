"""Probes: which stored rows match which tuples, by equality, band, grid or any predicate."""
