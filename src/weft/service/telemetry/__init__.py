"""What a service tells other systems of itself, where they are told: OpenTelemetry and OpenLineage."""
