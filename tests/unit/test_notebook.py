"""What notebooks and terminals show: short texts, pictures of plans, tables of results, and SQL in a cell."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pyarrow as pa
import pytest
from rich.console import Console

import weft
from tests.unit.adapting.snapshots import CHAIN, COLUMNS
from tests.unit.adapting.worlds import World
from weft.errors import ConfigError
from weft.session import planned_query
from weft.session.show.display import watch_session

LONGEST = 260  # letters of what stands for one thing
PAIR = "SELECT r.a AS a, s.b AS b FROM r [RANGE 1 MINUTE], s [RANGE 1 MINUTE] WHERE r.a = s.a"


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Three batches of a chain of four streams."""
    made = World(tmp_path)
    for name in COLUMNS:
        (tmp_path / name).mkdir()
    for _ in range(3):
        made.write(swapped=True)
    return made


@pytest.fixture
def ran(world: World) -> weft.Session:
    """A session that has run two queries, one of them into memory."""
    session = world.session()
    session.query(PAIR, name="<pair>", sink=weft.to_memory())
    session.run_available(end=False)
    return session


def shown(session: weft.Session) -> Iterator[Any]:
    """What a user has in hands, before and after a run."""
    query = session.queries[-1]
    yield from (session, query, query.query, query.progress, query.graph, query.graph.cost, session.catalog)
    yield from (session.statistics, session.measured(), session.statistics_report(), session.shared_graph)
    yield from (session.preview(CHAIN), *session.catalog.streams, weft.select("a.x").from_("a"))
    if session.totals.batches:
        yield from (session.progress, session.progress[query.name][0], query.progress.latency)
        yield from (
            session._measured.known,
            session._graphs.loop and session._graphs.loop.active_queries.plan,
        )


class TestTexts:
    """They name the thing and what matters of it."""

    def test_all_are_short(self, world: World, ran: weft.Session) -> None:
        for session in (world.session(), ran):
            for thing in shown(session):
                assert len(repr(thing)) <= LONGEST, type(thing)
                assert "\n" not in repr(thing)

    def test_they_say_what_is_going_on(self, world: World, ran: weft.Session) -> None:
        assert repr(world.session()) == "<Session: 4 streams, 0 tables, 1 queries; planned>"
        assert repr(ran) == "<Session: 4 streams, 0 tables, 2 queries; stopped, 3 batches>"
        query = ran.queries[-1]
        assert repr(query).startswith(f"<PlannedQuery <pair> (running, {query.results().num_rows:,} results)")
        assert "SELECT r.a AS a" in repr(query)
        assert repr(ran.progress["<pair>"][0]).startswith("<Batch 0: 240 rows, ")

    def test_a_builder_has_the_clauses_that_were_called(self) -> None:
        assert repr(weft.select("a.x").from_("a")) == "<Builder SELECT a.x FROM a>"


class TestPictures:
    """Notebooks show them as HTML."""

    def test_they_are_well_formed_and_escaped(self, world: World, ran: weft.Session) -> None:
        """Names of queries are users' texts."""
        for session in (world.session(), ran):
            for thing in (one for one in shown(session) if hasattr(one, "_repr_html_")):
                html = thing._repr_html_()
                ElementTree.fromstring(f"<div>{html.replace('<br>', '<br/>')}</div>")
                assert "<pair>" not in html

    def test_plans_are_drawn(self, ran: weft.Session) -> None:
        for thing in (ran, ran.queries[-1], ran.shared_graph, ran.preview(CHAIN)):
            assert 'class="weft-graph"' in thing._repr_html_()  # type: ignore[union-attr]

    def test_the_session_lists_its_queries(self, ran: weft.Session) -> None:
        html = ran._repr_html_()
        assert "&lt;pair&gt;" in html
        assert "chain" in html
        assert "rows waiting" in html


class TestResults:
    """They go where the user works."""

    def test_they_are_given_to_other_libraries(self, ran: weft.Session) -> None:
        query = ran.queries[-1]
        whole = query.results()
        assert query.head().equals(whole.slice(0, 10))
        assert query.head(3).num_rows == 3
        assert query.to_pandas().to_dict("list") == whole.to_pydict()
        assert query.to_polars().to_dict(as_series=False) == whole.to_pydict()

    def test_a_library_that_is_missing_is_named(
        self, ran: weft.Session, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def missing(name: str) -> None:
            raise ImportError(name)

        monkeypatch.setattr(planned_query, "import_module", missing)
        with pytest.raises(ConfigError, match="polars, which is not installed") as error:
            ran.queries[-1].to_polars()
        assert "pip install polars" in str(error.value.hint)

    def test_a_query_that_keeps_none_says_so(self, ran: weft.Session) -> None:
        with pytest.raises(ConfigError, match="does not keep its results"):
            ran.queries[0].to_pandas()


class Shell:
    """What Weft uses of IPython's shell."""

    def __init__(self, **variables: Any) -> None:
        self.user_ns: dict[str, Any] = variables
        self.magics: dict[str, Callable[..., Any]] = {}
        self.printers: dict[type, Callable[[Any], str]] = {}
        html = SimpleNamespace(type_printers=self.printers, for_type=self.printers.__setitem__)
        self.display_formatter = SimpleNamespace(formatters={"text/html": html})
        self.kernel = object()

    def register_magic_function(self, function: Callable[..., Any], kind: str, name: str) -> None:
        assert kind == "line_cell"
        self.magics[name] = function


class TestTheMagic:
    """`%load_ext weft` adds it, and SQL stands in a cell of its own."""

    @pytest.fixture
    def shell(self, world: World) -> Shell:
        made = Shell(session=world.session(), other=1)
        weft.load_ipython_extension(made)
        return made

    def test_a_cell_is_a_query(self, shell: Shell) -> None:
        query = shell.magics["weft"]("pair", PAIR)
        assert isinstance(query, weft.PlannedQuery)
        assert query is shell.user_ns["pair"]
        assert query.name == "pair"
        assert shell.user_ns["session"].queries[-1] is query

    def test_it_can_run_at_once(self, shell: Shell) -> None:
        table = shell.magics["weft"]("pair --run", PAIR)
        assert table.num_rows > 0
        html = shell.printers[pa.Table](table)
        assert f"{table.num_rows:,} rows, of which 10 are shown" in html
        assert html.count("<tr>") == 11

    def test_a_preview_registers_nothing(self, shell: Shell) -> None:
        preview = shell.magics["weft"]("--preview --strategy flat", PAIR)
        assert preview.strategy == "flat"
        assert len(shell.user_ns["session"].queries) == 1

    @pytest.mark.parametrize(
        ("line", "cell", "said"),
        [
            ("pair", "SELECT r.z FROM r", "column"),
            ("pair --sesion x", PAIR, "unrecognized arguments"),
            ("pair --session x", PAIR, "x is no session"),
            ("pair", None, "needs SQL"),
        ],
    )
    def test_mistakes_are_said_without_a_traceback(
        self, shell: Shell, capsys: pytest.CaptureFixture[str], line: str, cell: str | None, said: str
    ) -> None:
        assert shell.magics["weft"](line, cell) is None
        assert said in capsys.readouterr().err
        assert len(shell.user_ns["session"].queries) == 1

    def test_one_of_several_sessions_is_named(self, shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
        shell.user_ns["second"] = weft.Session()
        assert shell.magics["weft"]("pair", PAIR) is None
        assert "there are 2" in capsys.readouterr().err
        assert shell.magics["weft"]("pair --session session", PAIR) is not None


class TestWatching:
    """A session that runs is seen to run."""

    def test_as_text_it_is_written_down_each_time(self, world: World) -> None:
        session, out = world.session(), StringIO()
        session.start(available_now=True)
        watch_session(session, 0.01, console=Console(file=out, width=200))
        session.stop()
        text = out.getvalue()
        assert text.count("<Session:") >= 2
        assert text.rstrip().splitlines()[0].startswith("<Session: 4 streams")
        assert "chain  running" in text
        assert repr(session.watch()) == "<Watch: over>"

    def test_in_a_notebook_it_goes_on_beside_other_cells(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        updates, updated = list[str](), threading.Event()

        class Handle:
            def update(self, html: str) -> None:
                updates.append(html)
                if 'class="weft-graph"' in html:  # not before the first batch is planned
                    updated.set()

        display = ModuleType("IPython.display")
        display.HTML = str  # type: ignore[attr-defined]
        display.display = lambda *_, **__: Handle()  # type: ignore[attr-defined]
        ipython = ModuleType("IPython")
        shell = Shell()
        ipython.get_ipython = lambda: shell  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "IPython", ipython)
        monkeypatch.setitem(sys.modules, "IPython.display", display)
        session = world.session()
        assert pa.Table in shell.printers
        session.start()
        watch = session.watch(every=0.01)
        assert repr(watch) == "<Watch: live; stop() ends it>"
        assert updated.wait(60)
        watch.stop()
        count = len(updates)
        assert 'class="weft-graph"' in updates[-1]
        session.stop()
        assert len(updates) == count

    def test_it_ends_after_some_seconds(self, world: World) -> None:
        session, out = world.session(), StringIO()
        session.start()
        watch_session(session, 0.01, seconds=0.05, console=Console(file=out, width=200))
        assert session.is_active
        session.stop()
