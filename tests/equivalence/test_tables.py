"""Queries over streams and tables give what the definition says, whatever version of a table is in force when."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.equivalence.tables import random_story
from tests.shares import seeds


@pytest.mark.parametrize("seed", seeds(20))
def test_that_tables_are_looked_up_in_the_version_of_the_batch(seed: int) -> None:
    story = random_story(seed)
    given, expected = story.given(), story.expected()
    for name, (text, first) in story.queries.items():
        missing, surplus = expected[name] - given[name], given[name] - expected[name]
        shown = f"lacks {missing.most_common(5)}, has besides {surplus.most_common(5)}"
        assert (missing, surplus) == (Counter(), Counter()), f"{text} from batch {first}: {shown}"
