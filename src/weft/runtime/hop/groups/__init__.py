"""Groups of queries with aggregates in one hop: gathered where rows are found, given where they are kept."""
