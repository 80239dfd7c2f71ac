"""Where tuples come from: files, any streaming DataFrame, which is written to files, a generator, tables in memory."""
