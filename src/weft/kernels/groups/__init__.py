"""Rows become groups, and groups become partial states of aggregates that can be merged in any order."""
