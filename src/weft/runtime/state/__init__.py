"""All that persists of a partition: runs of stores in segments, its manifest, and what may be forgotten."""
