"""Pipeline files: what may stand in one, read into a session with its streams, queries and sinks."""

from weft.service.pipeline.pipeline import Pipeline, load_pipeline, read_pipeline

__all__ = ["Pipeline", "load_pipeline", "read_pipeline"]
