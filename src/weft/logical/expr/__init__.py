"""Expressions: columns, constants, functions, their types, and what can be inferred from conditions."""
