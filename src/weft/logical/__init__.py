"""What is asked for: schemas, expressions, windows, queries. Nothing about how it is computed."""
