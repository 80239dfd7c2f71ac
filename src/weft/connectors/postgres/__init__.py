"""Results as rows of PostgreSQL tables: the `sink`, and `columns` in PostgreSQL's types."""
