"""Tables in memory as streams, and results in the memory of the driver."""
