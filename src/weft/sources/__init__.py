"""Where tuples come from: files by the bytes path, any streaming DataFrame by the row path, a generator."""
