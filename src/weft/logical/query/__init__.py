"""A query as a value: its inputs, windows, keys, tree of joins, order and limits."""
