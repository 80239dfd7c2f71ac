"""What the loop and its tasks ask of the world: where tuples come from and where results go."""
