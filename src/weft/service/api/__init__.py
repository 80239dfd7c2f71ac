"""The HTTP interface to a running session, under `/api/v1`; it says what `SessionHub` says."""
