"""Small values that every room of the runtime speaks of: columns of a batch, its order, watermarks."""
