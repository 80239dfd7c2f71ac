"""`weft apply` makes a running service what a file says, and shows the difference first."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.unit.service.api.running import JOIN, PIPELINE, place, running_hub, served
from weft.errors import PipelineError
from weft.service.cli import app
from weft.service.client import Client
from weft.service.commands.apply import DIFFERENT, Change, differences
from weft.service.pipeline import load_pipeline
from weft.service.pipeline.document import read_document

MORE = '  more: {schema: "k long, ts timestamp", event_time: ts, source: {files: csv, path: in/more}}\n'
TEXT = "SELECT a.k, a.x FROM a [RANGE 1 HOUR], b [RANGE 1 HOUR] WHERE a.k = b.k"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Client]:
    """A running service with one query, q, whose file is pipeline.yaml in the directory of the test."""
    place(tmp_path)
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    with running_hub(tmp_path) as hub, served(hub) as (url, _):
        client = Client(url)
        client.url = url  # type: ignore[attr-defined]
        yield client


def run(client: Client, root: Path, text: str, *flags: str) -> tuple[int, str]:
    """The exit code and what was said."""
    (root / "wanted.yaml").write_text(text)
    url = client.url  # type: ignore[attr-defined]
    answer = CliRunner().invoke(app, ["apply", str(root / "wanted.yaml"), "--url", url, *flags])
    if answer.exception is not None and not isinstance(answer.exception, SystemExit):
        raise answer.exception
    return answer.exit_code, answer.output


def with_queries(*lines: str, streams: str = "") -> str:
    """The pipeline with other queries."""
    text = PIPELINE.replace(f"  q: {TEXT}\n", "".join(f"  {line}\n" for line in lines))
    return text.replace("queries:", f"{streams}queries:")


def statuses(client: Client) -> dict[str, str]:
    """What queries there are, and how they get on."""
    return {query.name: query.status for query in client.queries()}


def test_a_service_that_is_what_the_file_says_stays_so(service: Client, tmp_path: Path) -> None:
    """However the text is written; the second time there is never a difference."""
    code, said = run(service, tmp_path, PIPELINE, "--dry-run")
    assert (code, said.strip()) == (0, "the service is what the file says")
    other = "q: select a.k , a.x from a [range 60 minutes], b [RANGE 1 HOUR] where b.k = a.k"
    assert run(service, tmp_path, with_queries(other), "--yes")[0] == 0
    assert run(service, tmp_path, with_queries(other), "--dry-run")[0] == 0


def test_the_difference_is_shown_and_then_made(service: Client, tmp_path: Path) -> None:
    """A query is replaced, one added over a stream that is added, one stopped; then nothing is left to do."""
    service.create(JOIN, name="old")
    more = "SELECT a.k FROM a [RANGE 1 HOUR], more [RANGE 1 HOUR] AS m WHERE a.k = m.k"
    text = with_queries(
        f"q: {TEXT} AND a.k > 3",
        f"new: {more}",
        "kept: {sql: '" + JOIN + "', sink: {parquet: out/kept}}",
        streams=MORE,
    )
    code, said = run(service, tmp_path, text, "--dry-run")
    assert code == DIFFERENT
    assert "+ stream more" in said
    assert "~ query q  (text)" in said
    assert "- query old" in said
    assert "3 to add, 1 to replace, 1 to stop" in said
    assert statuses(service) == {"q": "running", "old": "running"} or "waiting" in statuses(service).values()
    code, said = run(service, tmp_path, text, "--yes")
    assert code == 0, said
    found = statuses(service)
    assert found["old"] == "stopped"
    assert {name for name, status in found.items() if status != "stopped"} == {"q", "new", "kept"}
    assert "a.k > 3" in service.query("q").sql
    assert str(service.query("kept").place).endswith("/out/kept")
    assert run(service, tmp_path, text, "--dry-run") == (0, "the service is what the file says\n")
    code, said = run(service, tmp_path, with_queries(f"q: {TEXT} AND a.k > 3"), "--yes")
    assert code == 0, said
    assert "stream more: removed" in said
    assert [stream.name for stream in service.streams()] == ["a", "b"]


def test_what_the_file_does_not_name_can_be_kept(service: Client, tmp_path: Path) -> None:
    """Others may have added queries by requests."""
    service.create(JOIN, name="visitor")
    code, said = run(service, tmp_path, PIPELINE, "--keep", "--dry-run")
    assert (code, said.strip()) == (0, "the service is what the file says")


def test_machines_read_json_and_must_say_yes(service: Client, tmp_path: Path) -> None:
    """Nothing changes where there is nobody to agree."""
    text = with_queries(f"q: {TEXT}", f"more: {JOIN}")
    code, said = run(service, tmp_path, text, "--json", "--yes")
    content = json.loads(said)
    assert code == 0
    assert [(one["action"], one["kind"], one["name"]) for one in content["changes"]] == [
        ("add", "query", "more")
    ]
    assert (content["made"], content["error"]) == (["more"], None)
    with pytest.raises(Exception, match="nobody to ask"):
        run(service, tmp_path, PIPELINE)
    with pytest.raises(Exception, match="--json asks nobody"):
        run(service, tmp_path, PIPELINE, "--json")
    assert statuses(service)["more"] != "stopped"


def test_what_cannot_be_is_refused_before_anything_changes(service: Client, tmp_path: Path) -> None:
    """A stream that is another, a table, a text that the service does not understand, a sink it does not allow."""

    def difference(text: str) -> tuple[Change, ...]:
        (tmp_path / "wanted.yaml").write_text(text)
        pipeline = load_pipeline(tmp_path / "wanted.yaml")
        return differences(pipeline, read_document(text, "wanted.yaml"), service)

    with pytest.raises(PipelineError, match=r"streams.b.lateness: 5.0 here, but 0.0 in the service"):
        difference(PIPELINE.replace("path: in/b}}", "path: in/b}, lateness: 5 seconds}"))
    with pytest.raises(PipelineError, match="no table t"):
        difference(PIPELINE + 'tables: {t: {schema: "k long"}}\n')
    assert [query.status for query in service.queries()] in (["running"], ["waiting"])


def test_what_fails_on_the_way_says_what_is_left(service: Client, tmp_path: Path) -> None:
    """The exit code is 1: the service is neither what it was nor what the file says."""
    text = with_queries(
        f"good: {JOIN}", "bad: {sql: '" + JOIN + "', sink: {parquet: elsewhere/x}}", f"last: {JOIN}"
    )
    code, said = run(service, tmp_path, text, "--yes")
    assert code == 1
    assert "query good: added" in said
    assert "this sink is not allowed" in said
    assert "not done: query bad, query last" in said
