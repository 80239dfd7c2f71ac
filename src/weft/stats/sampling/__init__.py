"""Samples of the attributes that queries join on, and the figures they tell."""
