"""Where tuples come from: files, any streaming DataFrame put down as files, a generator, tables in memory."""
