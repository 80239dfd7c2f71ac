"""What a partition remembers between batches: the runs of its stores, and what may be forgotten."""
