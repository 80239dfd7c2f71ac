"""Generated rows, for demos and benchmarks."""
