"""The work done on tuples: routing, probing, filtering, gathering. Functions take and give Arrow and NumPy values.

Start in `probe`: `equality`, `band` (ranges) and `theta` (any predicate) find pairs of row numbers (`ranges`), and
`materialise` makes columns of them. `expr.select` computes expressions, `route.partition` splits batches by partition,
and `warm_up` compiles all that a usual join runs.
"""
