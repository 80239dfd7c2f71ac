"""Files as streams, and results as Parquet files, in a folder of a file system or in an object store.

Reading: `source` is what a user describes; `cursor` is how far a folder has been taken, over a `listing` of it, with
`checks` of whether files are complete and a `cleaner` of those that were read; `object_files` is the same for an object
store; `parts` are what tasks read. Writing: `parquet_sink` and `parquet_files`, over a place where whole files appear
at once (`file_place`, with its two kinds in `places` and the single steps on a disk in `file_system`).
"""
