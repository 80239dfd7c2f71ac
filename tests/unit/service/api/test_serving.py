"""`weft serve` as a process: it starts, is asked to stop, starts again, fails; without Spark."""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.unit.service.api.process import is_ready, serving
from tests.unit.service.api.running import JOIN, PIPELINE, place, running_hub, served, wait_for
from tests.unit.service.command import weft
from tests.unit.service.questions import self_join
from weft.errors import ConfigError, PipelineError, StateError
from weft.service.client import Client, ServiceError
from weft.service.commands.serve import ServeOptions, serve_pipeline
from weft.service.pipeline import read_pipeline

pytestmark = pytest.mark.ci  # services in processes of their own, which are killed

ROOT = Path(__file__).parents[4]
TOKEN = "a-token-of-many-letters"


def test_what_is_wrong_is_said_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reached from elsewhere without a token, a port that is taken, half a certificate, no checkpoint."""
    monkeypatch.delenv("WEFT_TOKEN", raising=False)
    place(tmp_path)
    pipeline = read_pipeline(PIPELINE, "p.yaml", root=tmp_path)
    for host in ("0.0.0.0", "::", "192.0.2.1", "example.org"):
        with pytest.raises(ConfigError, match="there is no token"):
            serve_pipeline(pipeline, ServeOptions(host=host))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ConfigError, match="cannot listen on"):
            serve_pipeline(pipeline, ServeOptions(port=taken.getsockname()[1]))
    with pytest.raises(ConfigError, match="a certificate needs its key"):
        serve_pipeline(pipeline, ServeOptions(certificate=tmp_path / "c.pem"))
    with pytest.raises(ConfigError, match="cannot read the token file"):
        serve_pipeline(pipeline, ServeOptions(token_files=(tmp_path / "none",)))
    homeless = read_pipeline(PIPELINE.replace("checkpoint: ck\n", ""), "p.yaml", root=tmp_path)
    with pytest.raises(PipelineError, match="a run needs a place for its state"):
        serve_pipeline(homeless, ServeOptions())
    assert not (tmp_path / "ck").exists()


def test_a_service_is_stopped_and_goes_on(tmp_path: Path) -> None:
    """Queries and streams that were added by requests go on; the results that were kept begin anew."""
    here = place(tmp_path)
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE)
    with serving(file, WEFT_TOKEN=TOKEN) as (client, process):
        with pytest.raises(ServiceError, match="demands a token"):
            Client(f"http://127.0.0.1:{client._port}", token="").health()
        more = {"files": "csv", "path": "in/more"}
        client.add_stream("more", more, columns="k long, ts timestamp", event_time="ts")
        sql = "SELECT a.k FROM a [RANGE 1 HOUR], more [RANGE 1 HOUR] AS m WHERE a.k = m.k"
        client.create(sql, name="wide")
        client.create(JOIN, name="gone")
        here.pair(1)
        here.put("more", "1,2024-01-01T00:00:00Z")
        wait_for(lambda: client.results("wide").newest == 1)
        client.stop("gone")
        wait_for(lambda: client.query("gone").status == "stopped")
        origin = client.results("wide").origin
        ended = list[str]()
        reader = threading.Thread(target=lambda: ended.extend(e for e, _ in client._events("q", -1, None)))
        reader.start()
        wait_for(lambda: "weft_live_readers 1" in client.metrics())
        process.send_signal(signal.SIGTERM)
        reader.join(60)
        assert ended[-1] == "end"
        assert process.wait(60) == 0
    assert TOKEN not in (tmp_path / "output.txt").read_text()
    with serving(file) as (client, process):
        assert {one.name: one.status for one in client.queries()} == {"q": "running", "wide": "running"}
        assert [(one.name, one.declared) for one in client.streams()] == [
            ("a", "file"),
            ("b", "file"),
            ("more", "api"),
        ]
        here.put("a", "1,again,2024-01-01T00:00:00Z")
        wait_for(lambda: client.results("wide").newest == 1)  # what was stored is still there
        page = client.results("wide", after=1, origin=origin)
        assert (page.restarted, page.rows) == (True, ({"k": 1},))
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


def test_what_was_answered_holds_after_a_kill(tmp_path: Path) -> None:
    """A query that was created, and a stop, when the process dies before any batch."""
    here = place(tmp_path)
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE)
    with serving(file) as (client, process):
        here.pair(1)
        wait_for(lambda: client.query("q").results == 1)
        client.create(JOIN, name="late")
        client.stop("q")
        process.kill()
        process.wait(60)
    with serving(file) as (client, _):
        assert client.query("late").status in ("waiting", "running")
        here.pair(2)
        wait_for(lambda: client.results("late").newest == 1)
        assert client.query("q").status == "stopped"


def test_a_service_that_still_plans_stops_at_once_and_without_a_word(tmp_path: Path) -> None:
    """It went on planning for as long as that took, or ended in a traceback."""
    place(tmp_path)
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE.replace("  q: SELECT", f"  large: {self_join(30)}\n  q: SELECT"))
    code = "from weft.service.cli import main; main()"
    command = [sys.executable, "-c", code, "serve", str(file), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("serving on ")
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=120)
    assert (process.returncode, said) == (0, "")


def test_a_session_that_cannot_start_ends_the_service(tmp_path: Path) -> None:
    """With what is wrong, as any command."""
    place(tmp_path)
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE.replace("a.k, a.x", "a.k, a.y"))
    done = weft("serve", str(file), "--port", "0")
    assert done.returncode == 2
    assert "a has no column y" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_session_that_fails_is_not_ready_and_says_why(tmp_path: Path) -> None:
    """The service stays, so that somebody can look."""
    here = place(tmp_path)
    with running_hub(tmp_path, PIPELINE + "dead_letter_limit: 0\n") as hub, served(hub) as (url, _):
        client = Client(url)
        here.pair(1)
        wait_for(lambda: client.results("q").newest == 1)
        here.put("a", "nonsense,x,yesterday")
        wait_for(lambda: not is_ready(client))
        health = client.health()
        assert health.state == "failed"
        assert "1 of" in (health.error or "")
        with pytest.raises(ServiceError, match="the session has failed") as caught:
            client.create(JOIN)
        assert caught.value.status == 503
        assert client.results("q").rows == ({"k": 1, "x": "x"},)  # what was there can still be read
        assert client.overview().health.state == "failed"


def test_a_stream_that_is_no_longer_allowed_stops_the_start(tmp_path: Path) -> None:
    """The operator's file decides, also about what was added before."""
    place(tmp_path)
    with running_hub(tmp_path) as hub, served(hub) as (url, _):
        source = {"rate": 10, "columns": {"k": {"uniform": 3}}}
        Client(url).add_stream("generated", source)
        wait_for(lambda: "generated" in (tmp_path / "ck" / "weft.json").read_text())
    with (
        pytest.raises(Exception, match="the source of stream generated is not allowed"),
        running_hub(tmp_path, PIPELINE.replace(', {rate: "*"}', "")),
    ):
        pass
    (tmp_path / "ck" / "service.json").write_text("{")
    with pytest.raises(StateError, match=r"service\.json cannot be read"), running_hub(tmp_path):
        pass


def test_a_service_without_queries(tmp_path: Path) -> None:
    """They come by requests."""
    here = place(tmp_path)
    text = PIPELINE.replace(
        "  q: SELECT a.k, a.x FROM a [RANGE 1 HOUR], b [RANGE 1 HOUR] WHERE a.k = b.k\n", ""
    )
    with running_hub(tmp_path, text.replace("queries:\n", "")) as hub, served(hub) as (url, _):
        client = Client(url)
        assert client.queries() == ()
        assert client.graph().nodes == ()
        assert "No queries" in client.explain()
        client.create(JOIN, name="first")
        here.pair(1)
        wait_for(lambda: client.results("first").newest == 1)


def test_one_query_too_many(tmp_path: Path) -> None:
    """Whoever may add queries could fill the machine with them; one that stops makes room."""
    place(tmp_path)
    with running_hub(tmp_path, PIPELINE + "query_limit: 2\n") as hub, served(hub) as (url, _):
        client = Client(url)
        client.create(JOIN, name="second")
        with pytest.raises(ServiceError, match="2") as caught:
            client.create(JOIN, name="third")
        assert caught.value.status == 409
        client.stop("second")
        wait_for(lambda: client.query("second").status == "stopped")
        client.create(JOIN, name="third")


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_examples_of_the_documentation(tmp_path: Path) -> None:
    """As they are written, but for the port."""
    text = (ROOT / "examples" / "service.yaml").read_text(encoding="utf-8") + "execution: local\n"
    page = (ROOT / "docs" / "service.md").read_text(encoding="utf-8")
    commands = re.findall(r"```sh\n(.+?)```", page, re.DOTALL)
    assert len(commands) == 1
    with running_hub(tmp_path, text) as hub, served(hub) as (url, _):
        script = commands[0].replace("http://127.0.0.1:8080", url)
        plan, made, *rest = re.split(r"\n(?=curl)", script.strip())

        def run(command: str) -> Any:
            done = subprocess.run(
                ["bash", "-c", command], capture_output=True, text=True, check=True, timeout=120
            )
            return json.loads(done.stdout)

        assert run(plan)["adds"] == []
        assert run(made)["name"] == "seen"
        wait_for(lambda: hub.results("seen").newest > 2)
        found, stopped = map(run, rest)
        assert len(found["rows"]) == 2
        assert stopped["name"] == "seen"
