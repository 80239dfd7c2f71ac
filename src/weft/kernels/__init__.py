"""What is done to tuples: routed, probed, filtered, gathered. Arrow and NumPy in, Arrow and NumPy out.

Start with `probe` (equality), `band` (ranges) and `theta` (anything), which find pairs of row numbers (`ranges`), and
`materialise`, which makes tuples of them. `select` computes expressions, `route` splits batches, `warm_up` compiles.
"""
