"""Topics of Kafka as streams and as sinks, with the formats of their values and the registry of their schemas."""
