"""Results as rows of PostgreSQL tables."""
