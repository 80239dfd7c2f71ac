"""Queries over streams and tables give what the definition says, whatever version of a table is in force when."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest

from tests.equivalence.tables import random_story
from tests.shares import quick, seeds


@pytest.mark.parametrize("seed", quick(seeds(12), 4))
def test_that_tables_are_looked_up_in_the_version_of_the_batch(seed: int) -> None:
    story = random_story(seed)
    given, expected = story.given(), story.expected()
    for name, (text, first) in story.queries.items():
        missing, surplus = expected[name] - given[name], given[name] - expected[name]
        shown = f"lacks {missing.most_common(5)}, has besides {surplus.most_common(5)}"
        assert (missing, surplus) == (Counter(), Counter()), f"{text} from batch {first}: {shown}"


@pytest.mark.parametrize("seed", quick(seeds(8, block=1), 3))
def test_that_sub_selects_of_tables_are_tables(seed: int) -> None:
    """A filter or an expression of a sub-select over a table would be lost, or decide other rows than it does below."""
    story = random_story(seed)
    plain = {name: (text, first) for name, (text, first) in story.queries.items()}
    written = "(SELECT k + 1 AS k, UPPER(v) AS v, x FROM {0} WHERE k > 0 OR k IS NULL) AS {0}"
    story.queries = {
        name: (re.sub(r"\b(t\d)\b(?!\.)", lambda found: written.format(found[1]), text), first)
        for name, (text, first) in plain.items()
    }
    given = story.given()
    story.queries = plain
    story.versions = [{name: seen_below(rows) for name, rows in one.items()} for one in story.versions]
    assert given == story.expected()


def seen_below(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the sub-select gives of a table's rows."""
    kept = [row for row in rows if row["k"] is None or row["k"] > 0]
    return [
        {
            "k": None if row["k"] is None else row["k"] + 1,
            "v": None if row["v"] is None else row["v"].upper(),
            "x": row["x"],
        }
        for row in kept
    ]
