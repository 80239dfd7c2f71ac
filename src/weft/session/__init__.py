"""What users hold: a session parses, binds, plans and runs queries."""
