"""The best plan of many queries, by integer programming."""
