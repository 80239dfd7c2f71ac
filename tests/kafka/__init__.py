"""Kafka as a source and as a sink, against a real broker; `make kafka` fetches it."""
