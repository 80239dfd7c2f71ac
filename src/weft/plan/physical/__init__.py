"""The physical graph: its parts, the checks it passes, and how a plan is lowered to it."""
