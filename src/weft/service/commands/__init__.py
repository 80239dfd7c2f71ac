"""The commands of `weft` that take more than a few lines: one module for what a command does."""
