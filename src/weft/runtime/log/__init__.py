"""What survives a crash: the plans of batches, what they left, and the directory that holds them."""
