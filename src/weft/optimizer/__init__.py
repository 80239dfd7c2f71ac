"""From queries and statistics to plans."""
