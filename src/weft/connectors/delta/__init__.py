"""Delta tables, read as tables and written as sinks."""
