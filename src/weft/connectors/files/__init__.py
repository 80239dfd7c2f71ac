"""Folders of files as streams, and results as Parquet files, on a disk or in an object store."""
