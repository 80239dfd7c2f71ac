"""Tables that streams look up: `readers` of files, of Arrow tables and of DataFrames."""
