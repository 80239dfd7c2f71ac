"""Storages of every kind, and what Weft keeps in them; object stores by a real S3 interface on loopback."""
