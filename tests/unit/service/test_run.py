"""Running without Spark: when a run ends, how it is told, and what it needs."""

from __future__ import annotations

import io
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest
from rich.console import Console

from tests.unit.service.samples import GOOD, OUTER, RUNNABLE
from weft.errors import ConfigError, PipelineError, SourceError, WeftError
from weft.service import startup
from weft.service.commands.run import RunOptions, run_pipeline
from weft.service.demo import PIPELINE, run_demo
from weft.service.pipeline import load_pipeline
from weft.service.startup import prepare, prepare_kernels
from weft.service.terminal.watch import log_batches, stop_signals, watch
from weft.session.session import Session


class Clock:
    """A clock that a session moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Fake:
    """A session that ends after so many seconds."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self.clock, self.seconds = clock, seconds

    @property
    def is_active(self) -> bool:
        return self.clock.now < self.seconds

    def await_termination(self, timeout: int | None = None) -> bool:
        self.clock.now += timeout or 0
        return self.clock.now >= self.seconds


def nothing() -> None:
    """Tell nothing."""


def test_a_run_ends_with_its_session() -> None:
    """With --available-now, when all is processed."""
    clock = Clock()
    watch(Fake(clock, 7), Event(), None, nothing, lambda: True, clock)
    assert clock.now == 7


def test_a_run_ends_when_its_time_is_over() -> None:
    """--for 5s."""
    clock, told = Clock(), list[float]()
    watch(Fake(clock, 99), Event(), 5.0, lambda: told.append(clock.now), lambda: True, clock)
    assert told == [1, 2, 3, 4, 5]


def test_the_first_batch_takes_no_time() -> None:
    """While tasks load their code, a short demo would be over before it began."""
    clock = Clock()
    watch(Fake(clock, 99), Event(), 5.0, nothing, lambda: clock.now > 20, clock)
    assert clock.now == 25


def test_a_signal_ends_a_run_and_a_second_one_at_once() -> None:
    """Ctrl-C must not cut a batch in two, unless somebody insists."""
    before = signal.getsignal(signal.SIGINT)
    asked = Event()
    with stop_signals(asked):
        os.kill(os.getpid(), signal.SIGINT)
        assert asked.wait(60)
        clock = Clock()
        watch(Fake(clock, 99), asked, None, nothing, lambda: True, clock)
        assert clock.now == 0
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGINT) is before


def test_batches_are_logged_to_a_file(tmp_path: Path) -> None:
    """As the runtime words them, and only while the run lasts."""
    logger = logging.getLogger("weft")
    with log_batches(tmp_path / "log", False):
        logger.info(json.dumps({"batch": 1}))
    logger.info("later")
    assert (tmp_path / "log").read_text() == '{"batch": 1}\n'
    with pytest.raises(WeftError, match="cannot write the log"), log_batches(tmp_path / "a" / "b", False):
        pass


def test_what_cannot_run_never_starts_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a minute later would be too late."""
    monkeypatch.setattr("weft.service.commands.run.prepare", lambda *_: pytest.fail("started"))
    file = tmp_path / "p.yaml"
    file.write_text(GOOD)
    with pytest.raises(PipelineError, match="a run needs a place for its state"):
        run_pipeline(load_pipeline(file), RunOptions())
    with pytest.raises(PipelineError, match="without a source can be planned, not run"):
        run_pipeline(load_pipeline(file, checkpoint=tmp_path / "ck"), RunOptions())
    assert not (tmp_path / "ck").exists()


def test_rows_that_would_never_leave_are_said_before_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that goes on for ever would never give them; the remedies are those of a pipeline file."""
    monkeypatch.setattr("weft.service.commands.run.prepare", lambda *_: pytest.fail("started"))
    (tmp_path / "in").mkdir()
    file = tmp_path / "p.yaml"
    file.write_text(OUTER)
    for options in (RunOptions(), RunOptions(available_now=True)):
        with pytest.raises(PipelineError, match=r"queries\.patient: query patient would never") as caught:
            run_pipeline(load_pipeline(file), options)
        assert "emit_unmatched_after: 10 minutes; if the input ends, use --once" in str(caught.value)
    assert not (tmp_path / "ck").exists()


def test_input_that_ends_must_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Generated rows come for ever, and so would a run that waits for the last of them."""
    monkeypatch.setattr("weft.service.commands.run.prepare", lambda *_: pytest.fail("started"))
    (tmp_path / "in" / "a").mkdir(parents=True)
    file = tmp_path / "p.yaml"
    file.write_text(RUNNABLE)
    with pytest.raises(PipelineError, match=r"streams\.b\.source: rows are generated without end\n.*--once"):
        run_pipeline(load_pipeline(file), RunOptions(once=True))


def run_once(root: Path, work: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is asked of the session of a pipeline whose input ends, if there is so much to do."""
    asked: list[str] = []

    def end(_: Session) -> None:
        work()
        asked.append("ended")

    monkeypatch.setattr("weft.service.commands.run.prepare", lambda *_: None)
    monkeypatch.setattr(Session, "start", lambda _, **given: asked.append(f"start {given}"))
    monkeypatch.setattr(Session, "end", end)
    monkeypatch.setattr(Session, "stop", lambda _: asked.append("stop"))
    monkeypatch.setattr(Session, "progress", {})
    (root / "in").mkdir()
    file = root / "p.yaml"
    file.write_text(OUTER)
    run_pipeline(load_pipeline(file), RunOptions(once=True))
    return asked


def test_a_run_to_the_end_closes_rows_and_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--once: without the end, rows without a partner would be missing from the results."""
    asked = run_once(tmp_path, nothing, monkeypatch)
    assert asked == ["start {'available_now': False, 'ends': True}", "ended", "stop"]


def test_what_goes_wrong_in_a_run_to_the_end_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It happens in another thread; the command would end as if all were well."""

    def fail() -> None:
        raise SourceError("a file of another schema")

    with pytest.raises(SourceError, match="another schema"):
        run_once(tmp_path, fail, monkeypatch)


def test_a_run_to_the_end_can_be_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C must not have to wait for a terabyte."""
    over = Event()

    def interrupted() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        over.wait(60)

    try:
        assert run_once(tmp_path, interrupted, monkeypatch)[1:] == ["stop"]
    finally:
        over.set()


def test_results_and_json_do_not_share_the_output(tmp_path: Path) -> None:
    """Whoever reads the JSON would stumble over a table."""
    (tmp_path / "in" / "a").mkdir(parents=True)
    file = tmp_path / "p.yaml"
    file.write_text(RUNNABLE)
    with pytest.raises(PipelineError, match=r"queries\.s: its results go to the console, and so does --json"):
        run_pipeline(load_pipeline(file), RunOptions(json=True))


def test_what_spark_says_is_said_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rest is in its log."""

    def fail(*_: object) -> None:
        raise RuntimeError("An error occurred while calling o1.\n: Could not parse master\n\tat a.b")

    monkeypatch.setattr("weft.service.commands.run.prepare", fail)
    (tmp_path / "in" / "a").mkdir(parents=True)
    file = tmp_path / "p.yaml"
    file.write_text(RUNNABLE)
    with pytest.raises(WeftError, match=r"^Weft: the run failed: Could not parse master\nhint: .*spark\.log"):
        run_pipeline(load_pipeline(file), RunOptions())
    note = f"note: {file}, queries.t has no sink: its results go to the console\n"
    assert capsys.readouterr().err == note


def test_a_kept_demo_is_a_pipeline_to_play_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was changed in it stays changed."""
    ran: list[str] = []
    monkeypatch.setattr("weft.service.demo.run_pipeline", lambda pipeline, _: ran.append(pipeline.file))
    run_demo(5.0, None, tmp_path / "kept")
    copy = tmp_path / "kept" / PIPELINE.name
    copy.write_text(copy.read_text() + "# mine\n")
    run_demo(5.0, None, tmp_path / "kept")
    assert copy.read_text().endswith("# mine\n")
    run_demo(5.0, None, None)
    assert ran[:2] == [str(copy)] * 2
    assert not Path(ran[2]).exists()
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot keep the demo in"):
        run_demo(5.0, None, tmp_path / "file")


def test_without_java_the_demo_runs_in_this_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And says so, and how to get Java."""

    def missing() -> None:
        raise ConfigError("Spark needs Java 17 or newer, and there is none here")

    ran: list[str] = []
    monkeypatch.setattr("weft.service.demo.find_java", missing)
    monkeypatch.setattr(
        "weft.service.demo.run_pipeline", lambda pipeline, _: ran.append(pipeline.session.execution)
    )
    run_demo(5.0, None, None)
    assert ran == ["local"]
    said = capsys.readouterr().err
    assert "weft java" in said
    assert "without Spark" in said


@pytest.mark.parametrize("terminal", [True, False])
def test_compiling_that_takes_long_shows_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    """And what is in the cache is loaded in silence."""
    told, out = Event(), io.StringIO()

    def slow(report: Callable[[int, int], None], _: object) -> None:
        while "kernels" not in out.getvalue():
            report(1, 2)
            assert not told.wait(0.01)

    monkeypatch.setattr(startup, "_LONG", 0.01)
    monkeypatch.setattr(startup, "warm_up", slow)
    prepare_kernels(Console(file=out, force_terminal=terminal, width=100), None)
    monkeypatch.setattr(startup, "_LONG", 60.0)
    monkeypatch.setattr(startup, "warm_up", lambda *_: None)
    prepare_kernels(Console(file=(quiet := io.StringIO())), None)
    assert quiet.getvalue() == ""


@pytest.mark.parametrize("terminal", [True, False])
def test_starting_shows_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, terminal: bool
) -> None:
    """And what processes say on their standard error goes to the log."""
    monkeypatch.setattr(startup, "find_java", lambda: None)
    monkeypatch.setattr(startup, "warm_up", lambda report, _: report(9, 9))
    said = [sys.executable, "-c", "import os; os.write(2, b'noise')"]
    monkeypatch.setattr("weft.runtime.spark.session.create_spark", lambda _: subprocess.run(said, check=True))
    out = io.StringIO()
    prepare("local[1]", Console(file=out, force_terminal=terminal, width=100), tmp_path / "ck" / "spark.log")
    assert (tmp_path / "ck" / "spark.log").read_bytes() == b"noise"
    assert "Starting Spark" in out.getvalue()


def test_an_error_while_compiling_is_not_lost(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Though it happens in another thread."""

    def fail(*_: object) -> None:
        raise ConfigError("no cache")

    monkeypatch.setattr(startup, "find_java", lambda: None)
    monkeypatch.setattr(startup, "warm_up", fail)
    monkeypatch.setattr("weft.runtime.spark.session.create_spark", lambda _: None)
    with pytest.raises(ConfigError, match="no cache"):
        prepare("local[1]", Console(file=io.StringIO()), tmp_path / "spark.log")
