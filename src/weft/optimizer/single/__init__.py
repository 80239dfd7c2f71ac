"""Planning one query: the strategies, and the parts that they are made of."""
