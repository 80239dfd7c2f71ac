"""Two streams of files joined on Kubernetes: `spark-application.yaml` runs it, in the image that `Dockerfile` makes.

The directory in its argument is the shared volume: input in `in/orders` and `in/payments`, results in `out`.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

import weft


def main(root: str) -> None:
    """Join for as long as the application runs; started again, it goes on where it was."""
    spark = SparkSession.builder.getOrCreate()
    session = weft.Session(checkpoint=f"{root}/checkpoint", spark=spark, options=weft.Options(partitions=4))
    schema = "id long, amount double, ts timestamp"
    for name in ("orders", "payments"):
        source = weft.files("json", f"{root}/in/{name}", schema=schema)
        session.stream(name, source, event_time="ts", lateness="1 minute")
    session.query(
        """
        SELECT o.id, o.amount, p.amount AS paid
        FROM orders [RANGE 1 HOUR] AS o, payments [RANGE 1 HOUR] AS p
        WHERE o.id = p.id
        """,
        name="paid",
        sink=weft.to_parquet(f"{root}/out/paid"),
    )
    session.start()
    session.await_termination()


if __name__ == "__main__":
    main(sys.argv[1])
