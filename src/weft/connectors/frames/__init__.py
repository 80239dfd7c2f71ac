"""Streaming DataFrames of Spark's as a `source`, by way of Arrow files."""
