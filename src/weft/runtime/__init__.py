"""Batches executed: what a run remembers, what its tasks do, and the loop that drives them."""
