"""What a task of a batch is given, does and reports; how tasks exchange tuples and keep segments."""
