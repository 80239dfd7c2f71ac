"""How bytes become rows: `parquet` (with Arrow), `json_lines` and `csv`, by way of `columns` and `conform`.

`records` has what decoding gives, good rows and bad records; `dead_letters` is where the bad ones go.
"""
