"""What batches did: metrics, progress, log lines, observations, and statistics made of them."""
