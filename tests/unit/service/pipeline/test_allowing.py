"""What requests may name: nothing that the operator's file did not allow, by whatever way it is spelled."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import PipelineError
from weft.service.pipeline.document import Node
from weft.service.pipeline.serving import Allowed, read_allowed, read_serving

FILE = """
sources:
  - {files: csv, path: in/**}
  - {files: json, path: drop/*, clean: delete}
  - {rate: "*"}
  - {kafka: "views-*", servers: "localhost:9092"}
sinks:
  - {parquet: out/*}
  - {postgres: "public.*", dsn: "env:WAREHOUSE"}
  - {iceberg: "sales.*", catalog: {type: rest, uri: "https://lake/*"}}
  - console
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for folder in ("in/deep", "drop/one", "out", "secret", "ck"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "in" / "link").symlink_to(tmp_path / "secret")
    return tmp_path


def allowed(root: Path, text: str = FILE) -> Allowed:
    return read_allowed(Node("f", "allow", yaml.safe_load(text)), root, root / "ck")


@pytest.mark.parametrize(
    "asked",
    [
        {"files": "csv", "path": "in/deep", "recursive": True, "max_files_per_batch": 3},
        {"files": "csv", "path": "in"},
        {"files": "csv", "path": "in/new/deeper", "glob": "*.csv"},
        {"files": "json", "path": "drop/one", "clean": "delete"},
        {"rate": 1000, "columns": {"k": {"uniform": 3}}, "seed": 1},
        {"kafka": "views-1", "servers": "localhost:9092", "format": "json", "starting": "latest"},
    ],
)
def test_sources_that_are_allowed(root: Path, asked: dict[str, Any]) -> None:
    """By their patterns, with harmless options besides."""
    found = allowed(root).source(asked)
    assert found is not None
    assert "path" not in asked or found["path"] == os.path.realpath(root / asked["path"])


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"files": "csv"},
        {"files": "csv", "path": ""},
        {"files": "csv", "path": "secret"},
        {"files": "csv", "path": "/etc"},
        {"files": "csv", "path": "in/../secret"},
        {"files": "csv", "path": "in/deep/../../secret"},
        {"files": "csv", "path": "in/link"},
        {"files": "csv", "path": "in/link/x"},
        {"files": "csv", "path": "in\0/x"},
        {"files": "csv", "path": "file:///etc"},
        {"files": "csv", "path": "s3://bucket/in"},
        {"files": "csv", "path": ["in"]},
        {"files": "csv", "path": "in", "glob": "../../secret/*"},
        {"files": "csv", "path": "in", "glob": "/etc/*"},
        {"files": "csv", "path": "in", "clean": "delete"},
        {"files": "csv", "path": "in", "clean": "archive", "archive": "secret"},
        {"files": "csv", "path": "in", "python": "os:system"},
        {"files": "json", "path": "drop/one"},
        {"files": "json", "path": "drop/one/two", "clean": "delete"},
        {"files": "json", "path": "drop", "clean": "delete"},
        {"files": "json", "path": "drop/one", "clean": "archive"},
        {"files": "parquet", "path": "in"},
        {"kafka": "orders", "servers": "localhost:9092"},
        {"kafka": "views-1", "servers": "evil:9092"},
        {"kafka": "views-1", "servers": "localhost:9092,evil:9092"},
        {"kafka": "views-1", "servers": "localhost:9092", "options": {"sasl.password": "file:/etc/passwd"}},
        {"kafka": "views-1", "servers": "localhost:9092", "registry": "http://evil"},
        {"kafka": "views-1", "servers": ["localhost:9092", "evil:1"]},
    ],
)
def test_sources_that_are_not(root: Path, asked: dict[str, Any]) -> None:
    """Neither by spelling nor by links nor by options."""
    assert allowed(root).source(asked) is None


def test_sinks(root: Path) -> None:
    """Memory is always allowed; a secret only by the reference that the operator wrote."""
    found = allowed(root)
    assert found.sink("memory") == "memory"
    assert found.sink("console") == "console"
    assert found.sink({"parquet": "out/x", "compression": "zstd"}) is not None
    assert found.sink({"postgres": "public.t", "dsn": "env:WAREHOUSE", "key": "k"}) is not None
    assert found.sink({"iceberg": "sales.t", "catalog": {"type": "rest", "uri": "https://lake/x"}})
    for wrong in (
        *("parquet", "postgres", ""),
        {"parquet": "out"},
        {"parquet": "out/x/y"},
        {"parquet": "ck/x"},
        {"parquet": "out/../ck"},
        {"postgres": "public.t"},
        {"postgres": "public.t", "dsn": "file:/etc/passwd"},
        {"postgres": "secret.t", "dsn": "env:WAREHOUSE"},
        {"postgres": "public.t", "dsn": "env:WAREHOUSE", "parquet": "out/x"},
        {"iceberg": "sales.t", "catalog": "lake"},
        {"iceberg": "sales.t", "catalog": {"type": "rest", "uri": "https://lake/x", "token": "env:T"}},
    ):
        assert found.sink(wrong) is None, wrong


def test_the_checkpoint_is_closed_whatever_is_allowed(root: Path) -> None:
    """A request must not write into the state of the session."""
    every = allowed(root, "sinks: [{parquet: '**'}]")
    assert every.sink({"parquet": "out/x"}) is not None
    assert every.sink({"parquet": "ck"}) is None
    assert every.sink({"parquet": "ck/state/x"}) is None
    assert Allowed().sink({"parquet": "out/x"}) is None


def test_the_checkpoint_is_closed_to_streams_that_look_into_folders(root: Path) -> None:
    """What others have set aside is in there."""
    every = allowed(root, "sources: [{files: csv, path: '**'}]")
    assert every.source({"files": "csv", "path": "."}) is not None
    assert every.source({"files": "csv", "path": "in", "recursive": True}) is not None
    assert every.source({"files": "csv", "path": ".", "recursive": True}) is None


@given(st.text(max_size=30), st.sampled_from(["in/**", "in/*", "in"]))
def test_no_text_leads_out(text: str, pattern: str) -> None:
    """What is allowed is below what was named, for any text."""
    root = Path(__file__).parent
    found = Allowed(root, ({"path": pattern},)).source({"path": text})
    assert found is None or Path(found["path"]).is_relative_to(root / "in")


def test_a_file_that_allows_nonsense_is_refused() -> None:
    """At its place."""
    for wrong in ("sources: {a: b}", "sinks: [{}]", "sinks: [3]", "paths: []"):
        with pytest.raises(PipelineError):
            allowed(Path(), wrong)


def test_settings_of_a_service() -> None:
    """Numbers in their range, or an error at the place."""
    found = read_serving(Node("f", "serve", {"port": 0, "rate": 2.5, "hosts": ["weft.example.org"]}))
    assert (found.port, found.rate, found.hosts, found.host) == (0, 2.5, ("weft.example.org",), "127.0.0.1")
    for wrong in ({"port": 70000}, {"burst": 0}, {"rate": "x"}, {"hosts": "a"}, {"path": 1}, {"host": 3}):
        with pytest.raises(PipelineError):
            read_serving(Node("f", "serve", wrong))


OBJECTS = """
sources: [{files: csv, path: "s3a://lake/in/**"}, {files: csv, path: in/**, archive: old/*}]
sinks: [{parquet: "s3://lake/out/*"}, {delta: "s3://lake/**"}]
"""


def test_places_in_object_stores_that_are_allowed(root: Path) -> None:
    """By whichever name of the scheme; what comes out is the one spelling that is used then."""
    found = read_allowed(Node("f", "allow", yaml.safe_load(OBJECTS)), root, "s3://lake/ck")
    for asked, meant in (
        ("s3://lake/in", "s3://lake/in"),
        ("s3a://lake/in/a/", "s3://lake/in/a"),
        ("S3://lake//in//a/b", "s3://lake/in/a/b"),
    ):
        assert found.source({"files": "csv", "path": asked}) == {"files": "csv", "path": meant}
    assert found.sink({"parquet": "s3a://lake/out/x/"}) == {"parquet": "s3://lake/out/x"}
    assert found.sink({"delta": "s3://lake/a/b"}) == {"delta": "s3://lake/a/b"}


@pytest.mark.parametrize(
    "place",
    [
        *(
            "s3://lake/secret",
            "s3://other/in",
            "s3://lake",
            "s3://lake/inner",
            "gs://lake/in",
            "in",
            "lake/in",
        ),
        *("s3://lake/in/../secret", "s3://lake/in/..", "s3://lake/./in", "s3://lake/in/%2e%2e/secret"),
        *(
            "s3://lake/%69n",
            "s3://lake/in%2fa",
            "s3://lake/in%00",
            "s3://lake/in\0",
            "s3://lake/in\t",
            "s3://lake/in ",
        ),
        *("s3://LAKE/in", "s3://lake/IN", "s3://lake.evil/in", "s3://x@lake/in", "s3://k:p@lake/in"),
        *(
            "s3://lake/in?endpoint=http://evil",
            "s3://lake/in#x",
            "s3://lake:9000/in",
            "s3://",
            "s3:///lake/in",
        ),
        *(
            "s3:/lake/in",
            "s3:lake/in",
            " s3://lake/in",
            "file:///lake/in",
            "http://lake/in",
            "memory:0",
            "s3n://lake/in",
        ),
        *("", ["s3://lake/in"], None, 5),
    ],
)
def test_places_in_object_stores_that_are_not(root: Path, place: Any) -> None:
    """By no spelling that a store's library would read as another text."""
    sources = yaml.safe_load(OBJECTS)["sources"][:1]
    found = read_allowed(Node("f", "allow", {"sources": sources}), root, "s3://lake/ck")
    assert found.source({"files": "csv", "path": place}) is None


def test_a_checkpoint_in_an_object_store_is_closed(root: Path) -> None:
    """By any spelling; and a URI never fits a pattern of paths, nor a path one of URIs."""
    found = read_allowed(Node("f", "allow", yaml.safe_load(OBJECTS)), root, "s3://lake/ck")
    for place in ("s3://lake/ck", "s3a://lake//ck/", "s3://lake/ck/state/x", "s3://lake/CK/state"):
        assert found.sink({"delta": place}) is None
    assert found.sink({"delta": "s3://lake/ck2"}) is not None
    assert found.sink({"parquet": "out/x"}) is None
    asked = {"files": "csv", "path": "in", "archive": "s3://lake/in"}
    assert found.source(asked) is None
    every = allowed(root, "sinks: [{parquet: '**'}, {delta: '*'}]")
    for place in ("s3://lake/out", "s3:/lake/out", "s3a://lake/out"):
        assert every.sink({"parquet": place}) is None
        assert every.sink({"delta": place}) is None


@given(st.text(alphabet="s3a:/lkein.%2eoutck *?#@\t", max_size=30))
def test_no_text_leads_out_of_a_bucket(text: str) -> None:
    """What is allowed is below what was named, for any text."""
    entries = ({"path": "s3://lake/in/**"},)
    found = Allowed(Path("/"), entries, closed=("s3://lake/in/ck",)).source({"path": f"s3://lake/in{text}"})
    assert found is None or f"{found['path']}/".startswith("s3://lake/in/")
    assert found is None or not f"{found['path']}/".startswith("s3://lake/in/ck/")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sinks: [{parquet: 's3://*/out'}]", "names no bucket"),
        ("sinks: [{delta: 's3://lake/ou?'}]", "a pattern of URIs has no ?"),
        ("sinks: [{delta: 's3://lake/../x'}]", "has . or .. in its path"),
        (
            "sources: [{files: csv, path: in, archive: 's3://lake/x'}]",
            "archive is no place in an object store",
        ),
    ],
)
def test_patterns_that_fit_nothing_are_refused(root: Path, text: str, message: str) -> None:
    """An operator would take for allowed what is not."""
    with pytest.raises(PipelineError, match=re.escape(message)):
        allowed(root, text)
