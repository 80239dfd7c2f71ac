"""The results of queries as streams of other queries: the `sink` that writes them, the `source` that reads them."""
