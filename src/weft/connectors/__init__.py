"""What Weft reads from and writes to: a room for each outside system, with its source, its sink and its options."""
