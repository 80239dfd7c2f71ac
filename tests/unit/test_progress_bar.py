"""The bar that shows how far a run over bounded input is."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass, field

import pytest
from rich.console import Console

from weft.runtime.observe.metrics import BatchMetrics
from weft.session.show import display as bounded
from weft.session.show.display import progress_bar, total_files


@dataclass
class Files:
    """A source that knows how many files there are."""

    files: int

    def count(self) -> int:
        return self.files


@dataclass
class History:
    """Batches as they are done."""

    batches: list[tuple[int, BatchMetrics]] = field(default_factory=list)

    def add(self, results: int, closed: int, files: int) -> None:
        """One more."""
        metrics = BatchMetrics(len(self.batches), (), {}, {}, {}, results, closed={"q": closed}, files=files)
        self.batches.append((0, metrics))


def console(terminal: bool) -> tuple[Console, io.StringIO]:
    """A console, and what is written to it."""
    out = io.StringIO()
    return Console(file=out, force_terminal=terminal, width=120), out


def test_a_bar_shows_files_and_results(monkeypatch: pytest.MonkeyPatch) -> None:
    """An integration of millions of rows runs for hours: nobody could tell whether it will end today."""
    monkeypatch.setattr(bounded, "PAUSE", 0.01)
    screen, out = console(terminal=True)
    history = History()
    with progress_bar(history, [Files(3), Files(2)], screen):
        history.add(1200, 0, 2)
        history.add(34, 30, 3)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.getvalue())
    assert "5/5" in text
    assert "1,234 results, 30 of them without a partner" in text
    assert "━" in text


def test_what_is_done_at_the_end_is_shown_whatever_the_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last look is after the last batch: else it would stop at half."""
    monkeypatch.setattr(bounded, "PAUSE", 60)
    screen, out = console(terminal=True)
    history = History()
    with progress_bar(history, [Files(1)], screen):
        history.add(7, 0, 1)
    assert "7 results" in out.getvalue()


def test_an_error_ends_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed run must not hang behind the thread that watches it."""
    monkeypatch.setattr(bounded, "PAUSE", 60)
    screen, _ = console(terminal=True)
    with pytest.raises(ValueError, match="broken"), progress_bar(History(), [], screen):
        raise ValueError("broken")


def test_without_a_terminal_it_is_silent() -> None:
    """Logs and pipes would fill with control characters."""
    screen, out = console(terminal=False)
    history = History()
    with progress_bar(history, [Files(1)], screen):
        history.add(7, 0, 1)
    assert out.getvalue() == ""


def test_where_the_end_is_not_known_none_is_shown() -> None:
    """A generator has no number of files; a guess would be a lie."""
    assert total_files([Files(3), Files(2)]) == 5
    assert total_files([Files(3), object()]) is None
    assert total_files([]) == 0
