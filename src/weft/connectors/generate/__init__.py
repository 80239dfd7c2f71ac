"""Generated rows: at a `rate`, and with columns that `drift` while somebody turns a dial."""
