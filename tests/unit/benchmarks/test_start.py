"""The table of a start: its phases are all of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.start import main, phases, start_table, write_inputs
from rich.console import Console

MARKS = {
    "import": 1.0,
    "java": 1.1,
    "context": 2.5,
    "spark": 4.0,
    "workers": 6.5,
    "start": 5.0,
    "result": 7.25,
}


def test_phases_add_up() -> None:
    found = phases(MARKS)
    total, aside = found.pop("to the first result"), found.pop("(workers, meanwhile)")
    assert sum(found.values()) == total == 7.25
    assert aside == 2.5


def test_the_table_shows_medians(capsys: pytest.CaptureFixture[str]) -> None:
    slow = {name: 2 * at for name, at in MARKS.items()}
    Console(width=120).print(start_table({"with archive": [MARKS, MARKS, slow]}))
    assert "7.25" in capsys.readouterr().out


def test_inputs_of_different_numbers_do_not_overwrite_each_other(tmp_path: Path) -> None:
    write_inputs(tmp_path, 0)
    write_inputs(tmp_path, 1)
    assert len(list(tmp_path.rglob("*.parquet"))) == 4


def test_no_round_is_refused() -> None:
    with pytest.raises(SystemExit):
        main(["--rounds", "0"])
