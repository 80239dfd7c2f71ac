"""What somebody meets who has never run Weft."""
