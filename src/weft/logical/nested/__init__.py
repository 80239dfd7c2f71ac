"""Queries as inputs of queries, and how they become one n-way join."""
