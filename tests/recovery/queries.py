"""The queries of runs that are killed; w0, w1 and w2 are small numbers.

Streams have columns k and g, of 16 values; u, of which every stream has two tuples per value; x, from 0 to 1.
"""

from __future__ import annotations

QUERIES = {
    "chain": """SELECT a.id AS a, b.id AS b, c.id AS c, a.x + c.x AS x
                FROM a [RANGE {w0} SECONDS], b [RANGE {w1} SECONDS], c [RANGE {w2} SECONDS]
                WHERE a.k = b.k AND b.g = c.g""",
    "band": """SELECT a.id AS a, b.id AS b, b.x AS x FROM a [RANGE {w0} SECONDS], b
               WHERE a.x BETWEEN b.x - 0.05 AND b.x + 0.05
               AND b.ts BETWEEN a.ts - INTERVAL '{w1}' SECOND AND a.ts + INTERVAL '{w2}' SECOND""",
    "star": """SELECT a.id AS a, b.id AS b, c.id AS c, d.id AS d, d.x AS x
               FROM a [RANGE {w0} SECONDS], b [RANGE {w1} SECONDS], c [RANGE {w2} SECONDS], d [RANGE 1 SECOND]
               WHERE a.k = b.k AND a.g = c.g AND a.k = d.k AND a.x < c.x""",
}
STREAMS = {"chain": ("a", "b", "c"), "band": ("a", "b"), "star": ("a", "b", "c", "d")}
STRATEGIES = ("auto", "flat", "left_deep", "greedy_left_deep", "chain", "merge")

# What comes and goes: queries that share inputs, but are joined by other columns, in other orders, of other streams.
POOL = (
    *QUERIES.values(),
    """SELECT a.id AS a, b.id AS b, b.x AS x FROM a [RANGE {w0} SECONDS], b [RANGE {w1} SECONDS]
       WHERE a.k = b.k AND a.x < 0.{w2}""",
    """SELECT a.id AS a, b.id AS b, b.x AS x FROM a [RANGE {w0} SECONDS], b [RANGE {w1} SECONDS]
       WHERE a.g = b.g AND b.x > 0.{w2}""",
    """SELECT b.id AS b, c.id AS c, d.id AS d
       FROM b [RANGE {w0} SECONDS], c [RANGE {w1} SECONDS], d [RANGE {w2} SECONDS]
       WHERE b.k = c.k AND c.k = d.k""",
    """SELECT a.id AS a, b.id AS b, c.id AS c, c.k AS k
       FROM a [RANGE 2 SECONDS], b [RANGE {w1} SECONDS], c [RANGE {w2} SECONDS]
       WHERE a.k = b.k AND b.g = c.g AND c.k > {w0}""",
    """SELECT p.id AS p, q.id AS q FROM a [RANGE {w0} SECONDS] p, a [RANGE {w1} SECONDS] q
       WHERE p.k = q.g AND p.x < q.x""",
    "SELECT c.id AS c, c.x AS x FROM c WHERE c.k < 1{w0}",
)

# Rows without a partner leave while these run, once watermarks have passed them.
CLOSED = (
    """SELECT a.id AS a, b.id AS b, b.x AS x, provenance FROM a [RANGE {w0} SECONDS]
       LEFT JOIN b [RANGE {w1} SECONDS] ON a.k = b.k AND a.x < b.x - 0.{w2}""",
    """SELECT a.id AS a, c.id AS c, provenance FROM a [RANGE {w0} SECONDS]
       FULL JOIN c [RANGE {w1} SECONDS] ON a.g = c.g AND c.x > a.x + 0.{w2}""",
    """SELECT b.id AS b, d.id AS d FROM b LEFT JOIN d ON b.k = d.k AND d.x < 0.{w2}
       AND d.ts BETWEEN b.ts - INTERVAL '{w0}' SECOND AND b.ts + INTERVAL '{w1}' SECOND""",
    """SELECT a.id AS a, b.id AS b, c.id AS c, provenance
       FROM a [RANGE {w0} SECONDS] LEFT JOIN b [RANGE {w1} SECONDS] ON a.k = b.k AND b.x < 0.{w2}
       FULL JOIN c [RANGE 2 SECONDS] ON b.g = c.g AND c.x < 0.2""",
    """SELECT a.id AS a, a.x AS x FROM a [RANGE {w0} SECONDS]
       SEMI JOIN b [RANGE {w1} SECONDS] ON a.k = b.k AND b.x < 0.{w2}""",
    """SELECT b.id AS b, b.x AS x FROM b [RANGE {w0} SECONDS]
       ANTI JOIN c [RANGE {w1} SECONDS] ON b.g = c.g AND c.x < 0.{w2}""",
    """SELECT c.id AS c, d.id AS d FROM c [RANGE {w0} SECONDS]
       LEFT JOIN d [RANGE {w1} SECONDS] ON c.x BETWEEN d.x - 0.01 AND d.x + 0.01""",
)

# Without windows, on one key: any row may find a partner until the input ends.
ENDED = (
    """SELECT a.id AS a, b.id AS b, c.id AS c, provenance
       FROM a FULL JOIN b ON a.u = b.u FULL JOIN c ON COALESCE(a.u, b.u) = c.u""",
    """SELECT u, a.id AS a, c.id AS c, d.id AS d, provenance
       FROM a FULL JOIN c USING (u) FULL JOIN d USING (u)""",
    """SELECT b.id AS b, c.id AS c, b.x AS x FROM b LEFT JOIN c ON b.u = c.u AND c.x < 0.{w0}""",
    "SELECT a.id AS a, a.u AS u FROM a ANTI JOIN d ON a.u = d.u",
)
