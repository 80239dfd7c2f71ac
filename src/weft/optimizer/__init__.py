"""The optimiser: it makes plans from queries and statistics."""
