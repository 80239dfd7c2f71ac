"""Pipeline files: what may stand in one, read into a session with its streams, queries and sinks."""

from weft.service.pipeline.pipeline import PROBE_ORDERS, Pipeline, load_pipeline, read_pipeline

__all__ = ["PROBE_ORDERS", "Pipeline", "load_pipeline", "read_pipeline"]
