"""A library that is not installed is named together with what to install."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import weft
from tests.lakes.story import SCHEMA
from weft.errors import SinkError
from weft.ports.sink import Sink


@pytest.mark.parametrize(
    ("module", "extra"), [("deltalake", "delta"), ("pyiceberg.catalog", "iceberg"), ("psycopg", "postgres")]
)
def test_a_missing_library_is_named(
    module: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the session starts, not when Weft is imported or the sink is made."""
    monkeypatch.setitem(sys.modules, module, None)
    sinks: dict[str, Sink] = {
        "delta": weft.to_delta(tmp_path / "t"),
        "iceberg": weft.to_iceberg("lake", "a.t"),
        "postgres": weft.to_postgres("dbname=x", "t"),
    }
    with pytest.raises(SinkError, match=f"{module} cannot be imported") as caught:
        sinks[extra].open(SCHEMA, "owner")
    assert caught.value.hint == f'pip install "weft[{extra}]"'
