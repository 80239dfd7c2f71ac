"""GROUP BY, HAVING, DISTINCT and aggregates become the groups of a query."""
