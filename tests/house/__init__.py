"""The house measured: rooms, fragments and names, and the paths of a query and of a batch."""
