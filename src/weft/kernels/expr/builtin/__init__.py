"""How the functions that are built in are computed, by theme; `weft.logical.expr.builtin` says how they are called."""
