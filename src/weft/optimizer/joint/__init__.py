"""Planning many queries together: the methods, and the parts that they are made of."""
