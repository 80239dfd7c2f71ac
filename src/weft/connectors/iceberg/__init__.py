"""Results as Iceberg tables."""
