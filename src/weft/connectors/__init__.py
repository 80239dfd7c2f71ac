"""Everything outside of Weft that is read or written: a folder for each system, with its source, sink and options.

    files/      files in a folder or an object store; results as Parquet files
    formats/    how bytes become rows: Parquet, Arrow, JSON lines, CSV; what could not be read
    kafka/      topics, with Avro and schema registries
    delta/, iceberg/, postgres/     results as tables; Delta tables also as tables that streams look up
    tables/     other tables that streams look up: files, Arrow tables, DataFrames
    frames/     streaming DataFrames of Spark's
    derived/    the results of queries as streams of other queries
    generate/   generated rows, for demos and benchmarks
    memory/     tables in this process; results that stay in it, are printed, or go to a function

`common` has what several sinks share, and `sink_descriptions` knows all sinks, so that one can be made again from the
checkpoint. The runtime knows none of them, but what `weft.ports` asks of them.
"""
