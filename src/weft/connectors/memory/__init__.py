"""What is in the driver's process: tables as a `source`, and results that stay there or leave it by hand.

Sinks: `sink` keeps all results, `recent` the last ones, `count` only their number; `console` prints them, and `foreach`
hands them to a function of the user's.
"""
