"""What would be lost: a bad record that nobody can find again, or that a replay reports twice."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from weft.connectors.formats.dead_letters import DeadLetterLimit, DeadLetters
from weft.connectors.formats.records import BadRecord
from weft.errors import SourceError

BAD = BadRecord("views", "in/a.csv", "column k: 'x' is not a value of type int", b"x,\xff", 3, 4, 17)


def test_a_replay_replaces_what_the_batch_had_left(tmp_path: Path) -> None:
    letters = DeadLetters(tmp_path / "dead")
    letters.write(7, [BAD, BAD])
    letters.write(7, [BAD])
    letters.write(12, [BAD])
    assert letters.read(7) == (BAD,)
    assert list(letters.batches()) == [7, 12]
    letters.write(7, [])
    assert (list(letters.batches()), letters.read(7)) == ([12], ())
    assert [path.name for path in Path(letters.directory).iterdir()] == ["batch-000000000012.jsonl"]


def test_a_crash_while_writing_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    letters = DeadLetters(tmp_path)
    letters.write(7, [BAD])

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", crash)
    with pytest.raises(KeyboardInterrupt):
        letters.write(7, [BAD, BAD])
    assert letters.read(7) == (BAD,)
    assert list(letters.batches()) == [7]


def test_a_line_says_where_why_and_what(tmp_path: Path) -> None:
    DeadLetters(tmp_path).write(0, [BAD])
    (line,) = (DeadLetters(tmp_path).content(0) or b"").decode().splitlines()
    assert json.loads(line) == {
        "source": "views",
        "file": "in/a.csv",
        "row": 3,
        "line": 4,
        "offset": 17,
        "reason": BAD.reason,
        "raw": "x,\ufffd",
        "raw_base64": "eCz/",
    }


def test_limits_stop_the_run_and_say_why() -> None:
    DeadLetterLimit().check(10**6, 10**6)
    DeadLetterLimit(records=3).check(3, 3)
    with pytest.raises(SourceError) as caught:
        DeadLetterLimit(records=3).check(4, 100, [BAD], Path("dead"))
    assert str(caught.value) == (
        "source: 4 of 100 records were bad, more than the limit of 3 records\n"
        "  views: in/a.csv: line 4, row 3, offset 17: column k: 'x' is not a value of type int\n"
        "hint: see dead, then correct the input or raise the limit"
    )
    DeadLetterLimit(fraction=0.01).check(5, 5)  # too few to tell
    DeadLetterLimit(fraction=0.01).check(10, 1000)
    with pytest.raises(SourceError, match=r"more than the limit of 1\.00% of them"):
        DeadLetterLimit(fraction=0.01).check(11, 1000)
    for wrong in ({"records": -1}, {"fraction": 1.5}):
        with pytest.raises(SourceError, match="makes no sense"):
            DeadLetterLimit(**wrong)
