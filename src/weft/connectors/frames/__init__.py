"""Streaming DataFrames of Spark as streams."""
