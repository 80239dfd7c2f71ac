"""Bringing results into order: sorting, merging, punctuations."""
