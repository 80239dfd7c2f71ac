"""Queries with outer, semi and anti joins: what probing finds, what closing finds, and how long rows wait."""
