"""Where resident tasks on several machines find the driver, and where there can be none."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from weft.runtime.spark import resident
from weft.runtime.spark.resident import DriverAddress, fits, place_on_cluster


def spark(cores: int = 4, **settings: str) -> Any:
    """A Spark session on a cluster, as far as it is asked; underscores in settings are dots."""
    known = {name.replace("_", "."): value for name, value in settings.items()}
    context = SimpleNamespace(
        master="spark://host:7077",
        defaultParallelism=cores,
        getConf=lambda: SimpleNamespace(get=lambda name, otherwise=None: known.get(name, otherwise)),
    )
    return SimpleNamespace(sparkContext=context)


@pytest.mark.parametrize(
    ("settings", "place"),
    [
        ({"spark_driver_host": "h"}, DriverAddress("h")),
        ({"spark_driver_host": "h", "spark_driver_bindAddress": "0.0.0.0"}, DriverAddress("h", "0.0.0.0")),
        ({"spark_driver_host": "h", "spark_network_timeout": "8s"}, DriverAddress("h", silence=8)),
        ({"spark_driver_host": "h", "spark_network_timeout": "10min"}, DriverAddress("h")),
        ({"spark_driver_host": "h", "spark_ssl_rpc_enabled": "true"}, DriverAddress("h", encrypted=True)),
        (
            {"spark_driver_host": "h", "spark_network_crypto_enabled": "TRUE"},
            DriverAddress("h", encrypted=True),
        ),
    ],
)
def test_tasks_are_told_the_host_that_they_can_reach(settings: dict[str, Any], place: DriverAddress) -> None:
    """An address that the driver binds to, as 0.0.0.0, is none that tasks could connect to."""
    assert place_on_cluster(spark(**settings)) == place


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"spark_dynamicAllocation_enabled": "true"}, "no barrier stages"),
        ({"cores": 3}, "need as many slots"),
        ({}, ""),
    ],
)
def test_where_tasks_cannot_stay_the_reason_is_said(settings: dict[str, Any], why: str) -> None:
    """A start would wait for ever."""
    found = fits(spark(**settings), 4)
    assert why in found
    assert bool(why) == bool(found)


@pytest.mark.parametrize("name", ["spark_network_crypto_enabled", "spark_ssl_rpc_enabled"])
def test_where_spark_encrypts_tasks_stay_if_they_can_encrypt_too(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Data would travel in the clear where the user wants it encrypted."""
    monkeypatch.setattr(resident, "can_encrypt", lambda: False)
    encrypting = spark(4, **{name: "true"})
    found = fits(encrypting, 4)
    assert name.replace("_", ".") in found
    assert "weft[tls]" in found
    monkeypatch.setattr(resident, "can_encrypt", lambda: True)
    assert not fits(encrypting, 4)
