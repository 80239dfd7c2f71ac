"""Servers that tests and benchmarks start on this machine."""
