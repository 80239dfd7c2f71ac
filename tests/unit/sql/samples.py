"""The streams that the tests of the SQL front end query."""

from __future__ import annotations

from weft.logical.catalog import Catalog
from weft.logical.schema import Schema, Stream

CATALOG = Catalog(
    (
        Stream(
            "videos",
            Schema.parse(
                "vid long, title string, geo string, ts timestamp, likes int, score double, published date,"
                " price decimal(10,2), ok boolean"
            ),
            event_time="ts",
        ),
        Stream("views", Schema.parse("vid long, uid long, name string, ts timestamp, duration float")),
        Stream("comments", Schema.parse("uid long, text string, ts timestamp")),
    )
)
