"""Which queries are executed together, and which separately."""
