"""The plan of many queries together: the methods, and what they are made of."""
