"""Compiled loops over the bytes of columns, which the kernels of expressions call."""
