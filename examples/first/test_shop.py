"""The query of shop.py, tested without files, Spark or a clock. Run it: python -m pytest"""

from datetime import datetime, timedelta

from shop import make_session

from weft.testing import LocalRun

NOON = datetime(2026, 1, 1, 12)


def test_a_payment_within_five_minutes_counts() -> None:
    run = LocalRun(make_session())
    run.batch({"orders": [{"id": number, "customer": "ada", "amount": 9.5, "ts": NOON} for number in (1, 2)]})
    in_time, too_late = NOON + timedelta(minutes=4), NOON + timedelta(minutes=6)
    results = run.batch(
        {
            "payments": [
                {"order_id": 1, "method": "card", "ts": in_time},
                {"order_id": 2, "method": "card", "ts": too_late},
            ]
        }
    )
    assert results["paid"].to_pylist() == [{"id": 1, "customer": "ada", "amount": 9.5, "method": "card"}]
