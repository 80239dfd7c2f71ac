"""Which orders are paid within five minutes, and how? Run it: python shop.py"""

from tempfile import TemporaryDirectory

import weft

PAID = """
    SELECT o.id, o.customer, o.amount, p.method
    FROM orders [RANGE 5 MINUTES] AS o, payments [RANGE 5 MINUTES] AS p
    WHERE o.id = p.order_id
"""


def make_session(**options: object) -> weft.Session:
    """The streams and the query, for the program below and for its test."""
    session = weft.Session(**options)
    orders = weft.files("csv", "in/orders", schema="id long, customer string, amount double, ts timestamp")
    payments = weft.files("csv", "in/payments", schema="order_id long, method string, ts timestamp")
    session.stream("orders", orders, event_time="ts")
    session.stream("payments", payments, event_time="ts")
    session.query(PAID, name="paid", sink=weft.to_memory())
    return session


def main() -> None:
    """Join what is there, and print the results."""
    # A checkpoint that stays lets the next run go on where this one was, as in shop.yaml.
    with TemporaryDirectory() as checkpoint:
        # execution="local": in this process. Without it, Spark runs it, which needs Java (weft java).
        session = make_session(checkpoint=checkpoint, execution="local")
        session.start()
        session.process_all_available()
        (paid,) = session.queries
        print(paid.results().to_pandas())
        session.stop()


if __name__ == "__main__":
    main()
