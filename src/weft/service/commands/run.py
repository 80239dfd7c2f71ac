"""`weft run`: a pipeline from its file to its results.

Guarantees: what is wrong with a pipeline is said before Spark is started. A run stops on Ctrl-C or SIGTERM, when its
time is over, or when all that was there is processed; with `--once`, that is taken for the end of the input. The batch
under way is finished first, unless the run is asked to stop a second time. At the end the run says what it did. A
screen is drawn only on a terminal that nothing else writes to.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from rich.console import Console, RenderableType
from rich.live import Live

from weft.connectors.files.source import FilesSource
from weft.connectors.generate.rate import RateSource
from weft.connectors.memory.console import ConsoleSink
from weft.connectors.sink_descriptions import place_of
from weft.errors import QueryError, WeftError
from weft.logical.outer.waiting import check_closing
from weft.ports.sink import Sink
from weft.runtime.log.totals import Totals
from weft.runtime.observe.metrics import BatchMetrics
from weft.service.figures import batches_after, figures
from weft.service.pipeline import Pipeline
from weft.service.startup import in_background, prepare, prepare_kernels, spark_log
from weft.service.terminal.view import line, screen, summary
from weft.service.terminal.watch import log_batches, stop_signals, watch
from weft.session.planned_query import PlannedQuery
from weft.storage.objects import ObjectStorage
from weft.storage.storage import storage_at
from weft.storage.uris import is_object_uri, normal_place

__all__ = ["RunOptions", "check_runnable", "run_pipeline"]

_EVERY = 2.0  # seconds between lines where there is no screen
_CLOSING = "give a window, as in [RANGE 10 MINUTES], or emit_unmatched_after: 10 minutes; if the input ends, use --once"


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How long a run lasts, and what it reports.

    The file ``log`` gets a line of JSON per batch and query; so does the standard output, with ``json``. With ``once``,
    what is there is taken for all there is. ``kept`` says whether results and checkpoint are there afterwards, ``sure``
    that rows will come, so that a run of some seconds counts them from the first batch.
    """

    title: str = "weft run"
    available_now: bool = False
    seconds: float | None = None
    log: Path | None = None
    json: bool = False
    kept: bool = True
    once: bool = False
    sure: bool = False


def run_pipeline(pipeline: Pipeline, options: RunOptions) -> None:
    """Run all queries of a pipeline until the end."""
    check_runnable(pipeline)
    sinks = {name: pipeline.sink(name) for name in pipeline.queries}
    _check_output(pipeline, sinks, options)
    planned = [pipeline.plan(name, sink) for name, sink in sinks.items()]
    _check_end(pipeline, planned, options)
    for name in [name for name in sinks if name not in pipeline.sinks]:
        note = f"note: {pipeline.file}, queries.{name} has no sink: its results go to the console"
        print(note, file=sys.stderr)
    console = Console(stderr=options.json)
    log = spark_log(str(pipeline.checkpoint))
    with log_batches(options.log, options.json):
        try:
            queries = [query.query for query in planned]
            if pipeline.session.execution == "local":  # which needs neither Spark nor Java
                prepare_kernels(console, queries)
            else:
                prepare(pipeline.master, console, log, queries)
            _run(pipeline, planned, sinks, options, console)
        except WeftError:
            raise
        except Exception as error:
            raise WeftError(f"the run failed: {_reason(error)}", hint=f"{log} has what Spark says") from error
    if options.kept:
        _farewell(pipeline, sinks, console)


def _reason(error: Exception) -> str:
    """The line of an error's text that says what happened; the second, if the error is from Java."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[1].removeprefix(": ") if len(lines) > 1 and lines[1].startswith(": ") else lines[0]


def _check_output(pipeline: Pipeline, sinks: Mapping[str, Sink], options: RunOptions) -> None:
    for name, sink in sinks.items():
        if options.json and isinstance(sink, ConsoleSink):
            raise pipeline.place(f"queries.{name}").error(
                "its results go to the console, and so does --json", "give it another sink, or use --log FILE"
            )


def _check_end(pipeline: Pipeline, planned: Sequence[PlannedQuery], options: RunOptions) -> None:
    """Refuse streams without end if the input is to end, and queries that wait for its end if it does not."""
    streams = sorted({input_.stream.name for one in planned for input_ in one.query.inputs})
    for stream in streams if options.once else ():
        if isinstance(pipeline.sources.get(stream), RateSource):
            raise pipeline.place(f"streams.{stream}.source").error(
                "rows are generated without end", "leave out --once, or use --for TIME"
            )
    for one in planned if not options.once else ():
        try:
            check_closing(one.query, one.name)
        except QueryError as error:
            raise pipeline.place(f"queries.{one.name}").error(error.message, _CLOSING) from None


def check_runnable(pipeline: Pipeline) -> None:
    """Refuse a pipeline that can be planned but not run."""
    if pipeline.checkpoint is None:
        raise pipeline.place("checkpoint").error(
            "a run needs a place for its state", "add checkpoint: ck, or give --checkpoint DIR"
        )
    _check_store(pipeline, "checkpoint", str(pipeline.checkpoint))
    for name, sink in pipeline.sinks.items():
        _check_store(pipeline, f"queries.{name}.sink", place_of(sink) or "")
    read = {i.stream for name in pipeline.queries for i in pipeline.parse(name).inputs}
    for stream in sorted(one.name for one in read if not one.table):
        source = pipeline.sources.get(stream)
        if source is None:
            raise pipeline.place(f"streams.{stream}").error(
                "a stream without a source can be planned, not run",
                "as in source: {files: parquet, path: in/videos}",
            )
        if isinstance(source, FilesSource) and is_object_uri(source.root):
            _check_store(pipeline, f"streams.{stream}.source.path", source.root)
        elif isinstance(source, FilesSource) and not Path(source.root).exists():
            raise pipeline.place(f"streams.{stream}.source.path").error(
                f"there is no directory {source.path}", "make it, or correct the path"
            )


def _check_store(pipeline: Pipeline, where: str, place: str) -> None:
    """Refuse an object store that cannot be used; what is in none is no concern here."""
    if is_object_uri(place):
        with pipeline.place(where).at():
            ObjectStorage(normal_place(place)).check()


def _run(
    pipeline: Pipeline,
    planned: Sequence[PlannedQuery],
    sinks: Mapping[str, Sink],
    options: RunOptions,
    console: Console,
) -> None:
    session = pipeline.session
    session.start(available_now=options.available_now, ends=options.once)
    began = time.monotonic()

    stopping = Event()

    def now() -> RunMoment:
        elapsed = time.monotonic() - began
        return RunMoment(
            options.title,
            planned,
            batches_after(session.progress, session.resumed_after),
            session.run_totals,
            elapsed,
            stopping.is_set(),
        )

    alone = not options.json and not any(isinstance(sink, ConsoleSink) for sink in sinks.values())
    try:
        with stop_signals(stopping), _display(now, console, alone) as tell:
            runs = _Ending(in_background(session.end)) if options.once else session
            watch(
                runs,
                stopping,
                options.seconds,
                tell,
                lambda: not _first_runs(pipeline, now(), sure=options.sure),
            )
            stopping.set()
            session.stop()
    except KeyboardInterrupt:
        raise  # at once: Spark ends with this process, and the next run repeats the batch
    except BaseException:
        session.stop()
        raise
    last = now()
    console.print(summary(options.title, figures(planned, last.progress, last.totals), last.elapsed))
    session.check_suspended()


@dataclass(frozen=True, slots=True)
class _Ending:
    """A run over input that ends, which is over when all is processed."""

    done: Future[None]

    @property
    def is_active(self) -> bool:
        """Whether there is something left to process."""
        return not self.done.done()

    def await_termination(self, timeout: int | None = None) -> bool:
        """Wait for the end, so many seconds at most; True if it has come. An error of the run is raised."""
        if not wait([self.done], timeout).done:
            return False
        self.done.result()
        return True


@dataclass(frozen=True, slots=True)
class RunMoment:
    """What a run has done up to a moment, to be shown."""

    title: str
    planned: Sequence[PlannedQuery]
    progress: Mapping[str, Sequence[BatchMetrics]]
    totals: Totals
    elapsed: float
    stopping: bool = False

    def screen(self) -> RenderableType:
        """The moment as a screen of a terminal."""
        found = figures(self.planned, self.progress, self.totals, time.time())
        return screen(self.title, self.planned, found, self.elapsed, self.stopping)

    def line(self) -> str:
        """The moment as one line of text."""
        return line(figures(self.planned, self.progress, self.totals, time.time()), self.elapsed)


def _first_runs(pipeline: Pipeline, moment: RunMoment, *, sure: bool = False) -> bool:
    """Whether the first rows of this run are on their way: sure to come, or in a batch that is planned and not done."""
    every = [batch for batches in moment.progress.values() for batch in batches]
    if any(one.rows for batch in every for one in batch.inputs.values()):
        return False
    if sure or any(isinstance(source, RateSource) for source in pipeline.sources.values()):
        return True
    storage = storage_at(str(pipeline.checkpoint))
    plans, done = ({name for name in storage.list(one) if name[:1].isdigit()} for one in ("plan", "state"))
    return not plans <= done


@contextmanager
def _display(now: Callable[[], RunMoment], console: Console, alone: bool) -> Iterator[Callable[[], None]]:
    """Show a screen that draws itself, or give a function that prints a line now and then."""
    if console.is_terminal and alone:
        with Live(
            get_renderable=lambda: now().screen(), console=console, refresh_per_second=4, transient=True
        ):
            yield lambda: None
        return
    told, last = 0.0, ""

    def tell() -> None:
        nonlocal told, last
        if time.monotonic() - told >= _EVERY:
            told = time.monotonic()
            said = now().line()
            if said != last:
                console.print(said, markup=False, highlight=False, soft_wrap=True)
            last = said

    yield tell


def _farewell(pipeline: Pipeline, sinks: Mapping[str, Sink], console: Console) -> None:
    """Say where to find results and checkpoint."""
    for name, sink in sinks.items():
        place = place_of(sink)
        if place is not None:
            console.print(f"results of {name}: {place}", markup=False, highlight=False, soft_wrap=True)
    console.print(f"checkpoint: {pipeline.checkpoint}", markup=False, highlight=False, soft_wrap=True)
