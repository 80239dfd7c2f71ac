"""Bytes become rows: Parquet, Arrow, CSV and JSON, and dead letters for what cannot be read."""
