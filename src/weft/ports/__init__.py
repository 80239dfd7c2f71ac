"""What the runtime asks of what is outside: a `source` of a stream, a `sink` of results, a `table` to look up.

Protocols and the values that pass through them, nothing else; `punctuation` says up to where ordered results are
complete. `docs/extending.md` shows a source and a sink in a few dozen lines each.
"""
