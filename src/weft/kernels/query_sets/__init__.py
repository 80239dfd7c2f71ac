"""Which queries a row is of use to, as bitmaps, and the filters of all queries evaluated together."""
