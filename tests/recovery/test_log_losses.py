"""Losses of which the stories of faults told, and what is made of each part of the log that is lost."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.recovery.fault_story import BreakOffError
from tests.recovery.fault_world import FORMATS, Hook, World
from weft.connectors.files import cursor as taken
from weft.errors import SourceError, StateError, WeftError
from weft.runtime.log.checkpoint import Checkpoint
from weft.runtime.log.values import Manifest


class Scene(World):
    """A world that breaks off at a moment of a batch."""

    moment: tuple[str, int] | None = None

    def __init__(self, root: Path, *names: str, overlapping: bool = False) -> None:
        super().__init__(root, random.Random(1), names, overlapping, 2, "auto", self._break)

    def _break(self, moment: str, number: int, files: set[Path]) -> None:  # noqa: ARG002
        if (moment, number) == self.moment:
            self.moment = None
            raise BreakOffError

    def more(self) -> None:
        """A file of each stream."""
        for stream in FORMATS:
            self.write(stream)

    def run(self, batches: int = 1) -> None:
        """So many batches, each with a file of every stream."""
        if self.loop is None:
            self.start()
        for _ in range(batches):
            self.more()
            self.drain()

    def break_off(self, moment: str) -> None:
        """One more batch, which comes no further than that."""
        assert self.loop is not None
        self.more()
        self.moment = moment, self.last + 1
        with pytest.raises(BreakOffError):
            self.drain()
        self.stop()

    def losing(self, file: Path) -> Hook:
        """Delete a file before it is read."""

        def lose(moment: str, number: int, files: set[Path]) -> None:  # noqa: ARG001
            if moment == "before run":
                file.unlink(missing_ok=True)

        return lose

    @property
    def last(self) -> int:
        """The last committed batch."""
        return Checkpoint.at(self.checkpoint).last()

    @property
    def manifest(self) -> Manifest:
        """What it left."""
        found = Checkpoint.at(self.checkpoint).manifest(self.last)
        assert found is not None
        return found

    def check(self) -> None:
        """Everything that there is is processed, and right."""
        if self.loop is None:
            self.start()
        self.drain()
        assert not self.wrong()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    """A join of three streams, two batches old."""
    scene = Scene(tmp_path, "chain")
    scene.run(2)
    yield scene
    scene.stop()


def test_a_batch_whose_manifest_is_lost_is_repeated(scene: Scene) -> None:
    """From its plan, and from what the batch before left."""
    scene.run(2)
    scene.stop()
    last = scene.last
    (scene.checkpoint / f"state/{last}.json").unlink()
    scene.check()
    assert scene.last == last
    scene.run()
    scene.check()


@pytest.mark.parametrize("overlapping", [False, True])
def test_so_is_one_that_sinks_are_two_batches_ahead_of(tmp_path: Path, overlapping: bool) -> None:
    """Its results are in place but not its manifest, and the manifest before it is lost."""
    scene = Scene(tmp_path, "chain", "pair", overlapping=overlapping)
    scene.run(3)
    scene.break_off("before manifest")
    (scene.checkpoint / f"state/{scene.last}.json").unlink()
    scene.check()
    scene.stop()


def test_a_manifest_that_was_lost_can_be_put_back(scene: Scene) -> None:
    """A start that fails must not have deleted the files that it names."""
    scene.run(2)
    scene.stop()
    file = scene.checkpoint / f"state/{scene.last}.json"
    content, plan = file.read_bytes(), Checkpoint.at(scene.checkpoint).plan(scene.last)
    assert plan is not None
    source = Path(next(part.what["file"] for _, part in plan.parts))
    away = source.rename(source.with_name(f"_{source.name}"))
    file.unlink()
    with pytest.raises(WeftError, match=source.name):
        scene.check()
    scene.stop()
    file.write_bytes(content)
    scene.run()
    scene.check()
    away.rename(source)


def test_the_first_batches_need_no_manifest(scene: Scene) -> None:
    """Both manifests are lost, but the plans of all batches are there."""
    scene.stop()
    for file in (scene.checkpoint / "state").glob("*.json"):
        file.unlink()
    scene.check()


def test_a_log_without_manifests_is_refused(scene: Scene) -> None:
    """It would begin again from nothing."""
    scene.run(2)
    scene.stop()
    for file in (scene.checkpoint / "state").glob("*.json"):
        file.unlink()
    with pytest.raises(StateError, match="state has lost its manifests"):
        scene.check()


def test_a_batch_whose_plan_is_lost_is_planned_anew(scene: Scene) -> None:
    """Also with its results in place already; a plan that followed it goes with it."""
    scene.break_off("before manifest")
    number = scene.last + 1
    plan = scene.checkpoint / f"plan/{number}.json"
    plan.unlink()
    scene.write("a")
    scene.check()
    assert scene.last >= number


def test_a_plan_that_follows_a_lost_one_is_not_run(tmp_path: Path) -> None:
    """While a batch is committed the next one is planned; what both took is taken again."""
    scene = Scene(tmp_path, "chain", overlapping=True)
    scene.run(2)
    scene.break_off("before manifest")
    number = scene.last + 1
    log = Checkpoint.at(scene.checkpoint)
    scene.start()
    scene.moment = "planned", number + 1
    scene.more()
    with pytest.raises(BreakOffError):
        scene.drain()
    scene.stop()
    if log.last() < number:
        (scene.checkpoint / f"plan/{number}.json").unlink()
    scene.check()
    scene.stop()


def test_a_missing_weft_json_is_named(scene: Scene) -> None:
    """Whose log it is can no longer be told."""
    scene.stop()
    (scene.checkpoint / "weft.json").unlink()
    with pytest.raises(StateError, match=r"weft\.json is missing, though there is a log"):
        scene.check()


def test_a_log_of_an_old_format_is_refused_with_the_version_that_reads_it(scene: Scene) -> None:
    """Such a weft.json had no checksum."""
    scene.stop()
    (scene.checkpoint / "weft.json").write_text(json.dumps({"format": 5, "identity": "x"}))
    with pytest.raises(StateError, match=r"has format 5") as caught:
        scene.check()
    assert "Weft 0.1 reads it" in str(caught.value.hint)


def test_a_lock_that_is_deleted_still_keeps_others_out(scene: Scene) -> None:
    """Two sessions would overwrite each other's state."""
    (scene.checkpoint / "lock").unlink()
    with pytest.raises(StateError, match="in use by another session"):
        Checkpoint.at(scene.checkpoint).open({})
    scene.run()
    scene.check()


def test_results_that_wait_are_noticed_when_they_change(tmp_path: Path) -> None:
    """A byte of one of them was, and wrong rows left in silence."""
    scene = Scene(tmp_path, "ordered")
    scene.run(2)
    scene.stop()
    held = scene.checkpoint / "state/buckets" / scene.manifest.held["ordered"][0].name
    content = held.read_bytes()
    for place in range(200, len(content) - 200, 97):
        held.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(StateError, match=held.name):
            scene.run()
        scene.stop()
    held.write_bytes(content)
    scene.ending = True
    scene.start()
    assert scene.loop is not None
    scene.drain()
    scene.loop.end_input()
    scene.check()
    scene.stop()


def _newest(folder: Path) -> Path:
    return max(folder.iterdir(), key=lambda file: file.stat().st_mtime_ns)


def test_a_file_that_is_none_of_the_logs_stays(scene: Scene) -> None:
    """It may be the only copy of one that somebody moved out of the way."""
    scene.stop()
    blueprint = _newest(scene.checkpoint / "blueprints")
    segment = _newest(scene.checkpoint / "state/buckets")  # an older one may be of no use any more
    for file in (blueprint, segment):
        away = file.rename(file.with_name(f"{file.name}.old"))
        with pytest.raises(StateError, match=file.name):
            scene.run()
        scene.stop()
        away.rename(file)
    scene.check()


@pytest.mark.parametrize("moment", ["before plan", "before run"])
def test_a_stop_that_is_lost_is_named(tmp_path: Path, moment: str) -> None:
    """The query would go on without a word."""
    scene = Scene(tmp_path, "chain", "pair")
    scene.run()
    scene.stop_query("pair")
    scene.break_off(moment)
    stops = scene.checkpoint / "stops.json"
    content = stops.read_bytes()
    stops.unlink()
    with pytest.raises(StateError, match=r"stops\.json is missing"):
        scene.check()
    stops.write_bytes(content)
    scene.check()
    scene.stop()


@pytest.mark.parametrize("break_off", [False, True])
def test_a_query_that_was_stopped_before_it_began_stays_so(tmp_path: Path, break_off: bool) -> None:
    """It was given again, and ran."""
    scene = Scene(tmp_path, "chain", "pair")
    scene.start()
    scene.stop_query("pair")
    if break_off:
        scene.break_off("before plan")
    else:
        scene.run()
        scene.stop()
    for _ in range(2):
        scene.run()
        scene.check()
        scene.stop()


def test_another_query_may_have_the_name_of_one_that_stopped(tmp_path: Path) -> None:
    """It was stopped in its place, at the second start."""
    scene = Scene(tmp_path, "chain", "pair")
    scene.run()
    scene.stop_query("pair")
    scene.run()
    scene.stop()
    del scene.session._registered.requests["pair"]
    stopped = scene.given("pair")
    requests, sinks = scene.session._registered.requests, scene.session._registered.sinks
    requests["pair"], sinks["pair"] = requests["chain"], sinks["pair"]
    for _ in range(3):
        scene.run()
        scene.stop()
    assert "pair" in Checkpoint.at(scene.checkpoint).blueprint(scene.manifest.blueprint).requests
    assert scene.given("pair") != stopped


def test_names_that_cursors_keep_are_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files would be read twice."""
    monkeypatch.setattr(taken, "_MOST_IN_STATE", 0)
    scene = Scene(tmp_path, "chain")
    scene.run(3)
    scene.stop()
    blobs = [
        scene.checkpoint / "blobs" / n for cursor in scene.manifest.cursors.values() for n in cursor["blobs"]
    ]
    assert blobs
    for blob in blobs:
        content = blob.read_bytes()
        blob.write_bytes(b"")
        with pytest.raises(StateError, match=blob.name):
            scene.check()
        scene.stop()
        blob.write_bytes(content)
    scene.check()
    scene.stop()


def test_an_input_that_fails_while_the_input_ends_is_not_refused_later(tmp_path: Path) -> None:
    """Its batch had ended the input, and went on without it; when it was back, there was 'more input'."""
    scene = Scene(tmp_path, "outer", "ordered")
    scene.start()
    assert scene.loop is not None
    scene.more()
    scene.loop.end_input()
    file = next(iter(scene.meant))
    scene.hook = scene.losing(file)
    scene.loop.executor.hook = scene.hook  # type: ignore[attr-defined]
    with pytest.raises(SourceError, match=file.name):
        scene.drain()
    scene.stop()
    scene.put(file, scene.meant[file])
    scene.hook = scene._break
    scene.ending = True
    scene.start()
    scene.loop.end_input()
    scene.drain()
    assert not scene.wrong()
    scene.stop()
