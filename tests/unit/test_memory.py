"""How much memory a task may work with, and what follows from it."""

from __future__ import annotations

from pathlib import Path

import pytest

import weft
from weft.bucket.memory_limits import batch_bytes, bytes_of, machine_memory, portion_bytes, task_memory
from weft.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "size"), [("64MB", 64 << 20), ("1.5 gb", 3 << 29), ("7", 7), ("2 T", 2 << 40), (12, 12)]
)
def test_sizes_are_read_as_people_write_them(text: str | int, size: int) -> None:
    assert bytes_of(text) == size


@pytest.mark.parametrize("wrong", ["much", "-1 GB", "1 PB", "", True, 1.5, "1 MB", 0])
def test_what_is_no_memory_is_refused_by_the_session(wrong: object) -> None:
    """At once, not when the first task has none."""
    with pytest.raises(ConfigError):
        weft.Session(memory=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [0, -3, "many"])
def test_a_limit_that_no_query_can_keep_is_refused(wrong: object) -> None:
    with pytest.raises(ConfigError):
        weft.Session(result_limit=wrong)  # type: ignore[arg-type]


def test_a_container_has_no_more_than_it_may_use(tmp_path: Path) -> None:
    """Tasks that share what the machine has would be killed by the container's limit."""
    assert machine_memory(tmp_path) > 1 << 28
    (tmp_path / "memory.max").write_text("max\n")
    assert machine_memory(tmp_path) == machine_memory(tmp_path / "none")
    (tmp_path / "memory.max").write_text("123456789\n")
    assert machine_memory(tmp_path) == 123456789


def test_by_default_tasks_share_half_of_the_machine() -> None:
    for tasks in (1, 2, 64):
        each = task_memory(None, tasks)
        assert each * tasks <= machine_memory() or each == 1 << 26
    assert task_memory(None, 64) <= task_memory(None, 1)


def test_portions_and_batches_follow_from_the_memory() -> None:
    """With less memory, less at once; but never portions so large that caches do not matter any more."""
    sizes = [portion_bytes(f"{size} MB", 2) for size in (64, 256, 1024, 65536)]
    assert sizes == sorted(sizes)
    assert sizes[-1] == 64 << 20
    assert batch_bytes("1 GB", 8) == 2 * batch_bytes("1 GB", 4) == 2 << 30
