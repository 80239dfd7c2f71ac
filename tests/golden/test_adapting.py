"""What users read of a plan before and after it has followed the data; `make golden` writes the texts anew.

The data and the decisions are always the same; what was measured by a clock is blotted out.
"""

from __future__ import annotations

import math
import re
from datetime import timedelta
from pathlib import Path

import pytest

import weft
from tests.unit.adapting.snapshots import CHAIN, COLUMNS
from tests.unit.adapting.worlds import OPTIONS, described, table
from weft.adapting import adapter
from weft.testing import LocalRun

FOLDER = Path(__file__).parent / "adapting"
NAMES = ("before", "filling", "after")
SWAP = 12  # the first batch whose selectivities are others

BLOTS = {
    r"\d+\.\d+ s (saved|to)\b": r"… s \1",
    r"observed: [+-]\d+%": "observed: …",
    r"^  stage +seconds$": "  stage …",
    r"^  (sources|hop \d+|whole batch) +[0-9.e-]+$": r"  \1 …",
}


def run() -> dict[str, str]:
    """The chain before its selectivities swap, while the stores of another plan are filled, and by this plan."""
    adaptation = weft.Adaptation(
        epoch_batches=5,
        epoch_seconds=0.0,
        half_life_batches=4,
        horizon=timedelta(hours=1),  # what a plan saves then is worth any time that the change takes
        migrate="side by side",
    )
    session = weft.Session(options=OPTIONS, adaptation=adaptation)
    for name, columns in COLUMNS.items():
        schema = ", ".join([*(f"{column} long" for column in columns), "ts timestamp"])
        session.stream(name, weft.files("parquet", name, schema=schema), event_time="ts")
    described(session)
    session.query(CHAIN, name="chain", sink=weft.to_memory())
    local, found = LocalRun(session), dict[str, str]()
    for number in range(60):
        local.batch({name: table(number, name, swapped=number >= SWAP) for name in COLUMNS})
        ways = [change.way for change in session.plan_history]
        if number == SWAP - 1:
            found["before"] = session.explain()
        if ways and ways[-1] == "side by side":
            found["filling"] = session.explain()
        if ways and ways[-1] == "filled":
            return found | {"after": session.explain()}
    pytest.fail(f"the plan does not follow the data: {session.plan_history}")


def blotted(text: str) -> str:
    """A text without what was measured by a clock."""
    for wanted, instead in BLOTS.items():
        text = re.sub(wanted, instead, text, flags=re.MULTILINE)
    return text


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    """All texts of one run."""
    with pytest.MonkeyPatch.context() as patch:
        for share in ("SHARE", "HURRY"):
            patch.setattr(adapter, share, math.inf)  # a plan is looked for at the end of every epoch
        return {name: blotted(text) for name, text in run().items()}


@pytest.mark.parametrize("name", NAMES)
def test_golden_change(name: str, texts: dict[str, str], request: pytest.FixtureRequest) -> None:
    """A change that users cannot follow is one that they will not trust."""
    file = FOLDER / f"{name}.txt"
    if request.config.getoption("--regenerate-golden"):
        FOLDER.mkdir(exist_ok=True)
        file.write_text(texts[name], encoding="utf-8")
    assert texts[name] == file.read_text(encoding="utf-8"), f"{file} differs; `make golden` writes it anew"
