"""Topics of Kafka as streams, and results as records of a topic.

Reading: `source`, a `cursor` that asks brokers for `offsets`, and tasks that `fetch` messages, which become rows by
`records` and `values`. Writing: `sink`, which makes values by `sink_values` and looks after failures which
`committed_records` there are. `options` configures clients; `registry` knows schemas, and `avro/` values of Avro.
"""
