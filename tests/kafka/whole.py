"""The whole of it, to be killed: two topics and a Delta table of customers in, a topic and Delta tables out.

`python -m tests.kafka.whole FOLDER ADDRESS ORDERS PAYMENTS PAID` runs the queries from where its checkpoint stands, and
does what it is told by lines of its input: `add` adds a query while the others run, `settle` processes all that is
there, `end` does so and stops. It answers each with a line when that is done.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import weft

STREAMS = {
    "orders": "id long, customer long, amount decimal(12,2), ts timestamp",
    "payments": "bill long, method string, ts timestamp",
    "customers": "number long, name string, country string, since timestamp",
}
PAID = """
    SELECT o.id, c.name, p.method FROM orders AS o, payments AS p, customers AS c
    WHERE o.id = p.bill AND o.customer = c.number
"""
SALES = """
    SELECT c.country, o.id, o.amount, o.ts FROM orders AS o, customers AS c
    WHERE o.customer = c.number AND o.amount > 10
"""
CARDS = """
    SELECT p.bill, o.amount, c.country FROM orders AS o, payments AS p, customers AS c
    WHERE o.id = p.bill AND o.customer = c.number AND p.method = 'card'
"""


def make_session(
    folder: Path, address: str, topics: dict[str, str], paid: str, **settings: Any
) -> weft.Session:
    """The session with its streams and the two queries that it begins with."""
    session = weft.Session(checkpoint=folder / "checkpoint", **{"execution": "local", **settings})
    for name, topic in topics.items():
        source: Any = weft.kafka(address, topic, schema=STREAMS[name], max_records_per_batch=25)
        session.stream(name, source, event_time="ts", lateness="1 hour")
    customers = weft.files("parquet", str(folder / "customers"), schema=STREAMS["customers"])
    session.stream("customers", customers, event_time="since", lateness="1 hour")
    session.query(PAID, name="paid", sink=weft.to_kafka(address, paid, key="id"))
    session.query(SALES, name="sales", sink=weft.to_delta(folder / "sales", partition_by="country"))
    return session


def main() -> None:
    """Do what the input says."""
    folder, address, orders, payments, paid = Path(sys.argv[1]), *sys.argv[2:]
    session = make_session(folder, address, {"orders": orders, "payments": payments}, paid)
    session.start()
    print("started", flush=True)
    for line in sys.stdin:
        word = line.strip()
        if word == "add":
            session.query(CARDS, name="cards", sink=weft.to_delta(folder / "cards", compact=True))
        session.process_all_available()
        print(word, flush=True)
        if word == "end":
            break
    session.stop()


if __name__ == "__main__":
    main()
