"""Delta tables: a `sink`, the `files` that it writes, and a `table` that streams look up."""
