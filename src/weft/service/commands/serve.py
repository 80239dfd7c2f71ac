"""`weft serve`: one process that runs a session, its HTTP interface and its page.

Guarantees: what is wrong with the pipeline or with the settings is said before anything is started. Bound to anything
but this machine, it demands tokens and refuses to start without. The interface answers while the session starts. If
it cannot be started, the process ends with the error; if it fails later, the service stays, is not ready, and says why.
On Ctrl-C or SIGTERM, live results are ended, the batch under way is finished, and the process ends; asked a second
time, at once. While queries are planned for the start nothing runs yet, and nothing is waited for.
"""

from __future__ import annotations

import ipaddress
import math
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console

from weft.errors import ConfigError, WeftError
from weft.service.api.listening import allow_many_files, listen, timed_protocol
from weft.service.commands.run import check_runnable
from weft.service.pipeline import Pipeline
from weft.service.startup import prepare, spark_log
from weft.service.terminal.watch import stop_signals

__all__ = ["ServeOptions", "serve_pipeline"]

_STARTED = 60.0  # seconds for which a server may start

SWITCH = 0.001  # seconds after which a thread that computes lets others go on, so that batches do not wait for requests
GRACE = 5  # seconds that answers under way may take at the end


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """What the command line says: host and port win over the file's.

    A ``demo`` has controls on its page, and takes another port if its own is taken. After so many ``seconds`` the
    service ends by itself; ``opened`` is called with its address.
    """

    host: str | None = None
    port: int | None = None
    token_files: tuple[Path, ...] = ()
    certificate: Path | None = None
    key: Path | None = None
    demo: bool = False
    seconds: float | None = None
    opened: Callable[[str], None] | None = None


def serve_pipeline(pipeline: Pipeline, options: ServeOptions) -> None:
    """Run a pipeline's session and serve it until the process is asked to stop."""
    for needed in ("fastapi", "uvicorn"):
        if find_spec(needed) is None:
            raise ConfigError(f"weft serve needs {needed}", hint="pip install 'weft[serve]'")
    check_runnable(pipeline)
    if (options.certificate is None) != (options.key is None):
        raise ConfigError("a certificate needs its key, and a key its certificate", hint="give both")
    given = {name: one for name in ("host", "port") if (one := getattr(options, name)) is not None}
    pipeline = replace(pipeline, serving=replace(pipeline.serving, **given))
    guard = _guard_settings(pipeline, options)
    listening = listen(pipeline.serving.host, pipeline.serving.port, any_port=options.demo)
    allow_many_files()
    sys.setswitchinterval(SWITCH)
    with listening:
        _Process(pipeline, guard, options).run(listening)


def _guard_settings(pipeline: Pipeline, options: ServeOptions) -> Any:
    """Who may ask, and how much; an error if the service could be reached from elsewhere without a token."""
    from weft.service.api.guard import GuardSettings
    from weft.service.api.tokens import read_tokens

    serving = pipeline.serving
    tokens = read_tokens(options.token_files, os.environ)
    local = _is_local(serving.host)
    if tokens is None and not local:
        raise ConfigError(
            f"on {serving.host}, the service could be reached from elsewhere, and there is no token",
            hint="give --token-file FILE or set WEFT_TOKEN; or leave out --host",
        )
    names = (*serving.hosts, "localhost", "127.0.0.1", "[::1]", _shown(serving.host))
    hosts = tuple(name.lower() for name in names) if local or serving.hosts else None
    return GuardSettings(tokens, hosts, serving.rate, serving.burst, serving.body_bytes)


def _is_local(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _shown(host: str) -> str:
    """A host as it stands in a URL."""
    return f"[{host}]" if ":" in host else host


class _Process:
    """The session, the interface and the page of one process."""

    def __init__(self, pipeline: Pipeline, guard: Any, options: ServeOptions) -> None:
        from weft.service.api.app import make_service
        from weft.service.demo_controls import DemoControls
        from weft.service.hub.hub import SessionHub

        self.pipeline, self.options = pipeline, options
        self.hub = SessionHub(pipeline)
        self.service = make_service(self.hub, guard)
        self.controls = DemoControls(pipeline, self.hub) if options.demo else None
        self.page = _mount_page(self.service.app, self.hub, self.controls)
        self.telemetry = _telemetry(self.hub, self.service.metrics)
        self.console = Console(stderr=True)
        self.failure: BaseException | None = None
        self.stopping, self.planned = threading.Event(), threading.Event()

    def run(self, listening: socket.socket) -> None:
        """Serve until asked to stop."""
        import uvicorn

        ssl = {} if self.options.certificate is None else _certificate(self.options)
        config = uvicorn.Config(
            self.service.guarded,
            http=timed_protocol(),
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=GRACE,
            h11_max_incomplete_event_size=32 << 10,
            **ssl,
        )
        server = uvicorn.Server(config)
        stopping = self.stopping
        answering = threading.Thread(target=server.run, args=[[listening]], name="weft-http", daemon=True)
        host, port = listening.getsockname()[:2]
        with stop_signals(stopping):
            answering.start()
            _wait_until_started(server, answering)
            scheme = "https" if self.options.certificate else "http"
            address = f"{scheme}://{_shown(host)}:{port}"
            print(f"serving on {address}", flush=True)
            if self.options.opened is not None:
                self.options.opened(address)
            starting = threading.Thread(target=self._start, name="weft-start", daemon=True)
            starting.start()
            until = math.inf if self.options.seconds is None else time.monotonic() + self.options.seconds
            try:
                while answering.is_alive() and not stopping.wait(0.2) and time.monotonic() < until:
                    pass
            finally:
                self._stop(server, answering, starting)
        if isinstance(self.failure, WeftError):
            raise self.failure
        if self.failure is not None:
            raise WeftError(f"the session cannot be started: {self.failure}") from self.failure

    def _start(self) -> None:
        """Start the session while the interface answers already."""
        try:
            self.hub.start(self._prepare_spark)
            if self.controls is not None:
                self.controls.begin()
        except BaseException as error:
            self.failure = None if self.stopping.is_set() and not self.planned.is_set() else error
            self.stopping.set()
        else:
            self.console.print("the session runs", markup=False, highlight=False)

    def _prepare_spark(self) -> None:
        if self.stopping.is_set():
            raise WeftError("the service was asked to stop before its session had begun")
        self.planned.set()
        if self.pipeline.session.execution != "local":
            demo = self.controls is not None  # whose queries are few; to others any may be added
            queries = [self.pipeline.parse(name) for name in self.pipeline.queries] if demo else None
            log = spark_log(str(self.pipeline.checkpoint))
            prepare(self.pipeline.master, self.console, log, queries)

    def _stop(self, server: Any, answering: threading.Thread, starting: threading.Thread) -> None:
        """End live results, then the session after the batch under way, then the interface."""
        self.stopping.set()
        self.service.live.close_soon()
        if self.planned.is_set() or not starting.is_alive():
            starting.join()
            with suppress(Exception):  # if it has failed, health says so
                self.hub.stop()
        for told in self.telemetry:
            with suppress(Exception):  # what cannot be told any more does not keep the process
                told.close()
        server.should_exit = True
        answering.join(GRACE + 5)


def _telemetry(hub: Any, metrics: Any) -> tuple[Any, ...]:
    """What is told to other systems, as the file says."""
    serving, told = hub.pipeline.serving, list[Any]()
    if serving.otel:
        from weft.service.telemetry.otel import otel_telemetry

        told.append(otel_telemetry(hub, metrics))
    if serving.lineage is not None:
        from weft.service.telemetry.lineage import lineage_teller

        told.append(lineage_teller(hub, serving.lineage, Path(hub.pipeline.file).absolute().parent))
    return tuple(told)


def _certificate(options: ServeOptions) -> dict[str, Any]:
    for file in (options.certificate, options.key):
        if file is not None and not file.is_file():
            raise ConfigError(f"there is no file {file}")
    return {"ssl_certfile": str(options.certificate), "ssl_keyfile": str(options.key)}


def _wait_until_started(server: Any, answering: threading.Thread) -> None:
    """Wait until a server answers, a minute at most, or has ended.

    While it starts, the library of the page looks at all objects of this process (`gc.get_objects`). A tuple that
    another thread is just making would be seen half made, and CPython raises a `SystemError` there.
    """
    until = time.monotonic() + _STARTED
    while answering.is_alive() and not server.started and time.monotonic() < until:
        time.sleep(0.01)


def _mount_page(app: Any, hub: Any, controls: Any = None) -> bool:
    """Mount the page, if it is there and NiceGUI is installed; returns whether it is."""
    if find_spec("nicegui") is None or find_spec("weft.service.page.mount") is None:
        return False
    mount: Callable[[Any, Any, Any], None] = import_module("weft.service.page.mount").mount_page
    mount(app, hub, controls)
    return True
