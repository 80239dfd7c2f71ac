"""The plan of one query: the strategies, and what they are made of."""
