"""The results of a query as the tuples of a stream."""
