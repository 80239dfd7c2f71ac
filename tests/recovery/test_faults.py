"""What happens to files loses nothing in silence: the answer is right, or an error names the file."""

from __future__ import annotations

import time
import traceback
from collections import Counter
from pathlib import Path

import pytest

from tests.equivalence.merging import random_merging
from tests.recovery.fault_story import Story
from tests.shares import seeds
from weft.connectors.files import cursor as taken

STORIES = 8
CHAPTERS = 6  # faults of one story


def test_files_that_are_lost_or_damaged_are_survived_or_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inputs and every file of the log, between and during batches."""
    monkeypatch.setattr(taken, "_MOST_IN_STATE", 3)  # so that cursors have blobs
    outcomes, wrong = Counter[str](), list[str]()
    for number in seeds(STORIES):
        story = Story(tmp_path / str(number), number, CHAPTERS)
        began = time.process_time()
        try:
            with random_merging(number):
                story.run()
        except Exception:
            wrong.append("\n".join([*story.lines, traceback.format_exc()]))
        finally:
            story.world.stop()
        outcomes += story.outcomes
        assert time.process_time() - began < 60, f"story {story.seed} takes too long"
    print(dict(sorted(outcomes.items())))
    assert not wrong, f"{len(wrong)} stories went wrong:\n" + "\n\n".join(wrong[:5])
    assert outcomes["right"] > 0
    assert outcomes["named"] > 0
    assert outcomes["wrong times"] > 0
