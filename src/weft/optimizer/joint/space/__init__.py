"""The space of plans of many queries together, and what plans in it cost and store."""
