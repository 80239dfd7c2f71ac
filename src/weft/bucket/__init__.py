"""Sorted, indexed, immutable runs of tuples: the unit of data (design, D1 and D4)."""

from weft.bucket.bucket import Bounds, Bucket, build
from weft.bucket.index import Order, by_hash, by_value
from weft.bucket.position import POSITION

__all__ = ["POSITION", "Bounds", "Bucket", "Order", "build", "by_hash", "by_value"]
