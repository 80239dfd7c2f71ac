"""Results on their way out: what is kept for sinks that cannot take it now."""
