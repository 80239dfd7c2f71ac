"""Plans and graphs as values that print themselves."""
