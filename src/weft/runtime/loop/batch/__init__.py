"""One batch: its tasks are run, what they reported becomes what the batch leaves, and that is committed."""
