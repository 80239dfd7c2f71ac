"""A physical graph prepared for execution: everything about it that no batch changes."""
