"""Results as Iceberg tables: the `sink`."""
