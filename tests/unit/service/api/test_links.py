"""Symbolic links in a tree that is allowed: a token that may only read sees nothing of files elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from tests.unit.service.api.running import place, running_hub, wait_for
from weft.service.api.app import make_service
from weft.service.api.guard import GuardSettings

QUERY = "SELECT a.k FROM a [RANGE 1 HOUR], more [RANGE 1 HOUR] AS m WHERE a.k = m.k"


@pytest.mark.parametrize("recursive", [True, False])
def test_links_lead_nowhere(tmp_path: Path, recursive: bool) -> None:
    """Neither as results nor as dead letters; what is inside is read."""
    here = place(tmp_path)
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "passwords.csv").write_text("tiger:x:0\nlion:y:1\n")
    more = tmp_path / "in" / "more"
    (more / "file.csv").symlink_to(secret / "passwords.csv")
    (more / "folder").symlink_to(secret)
    with running_hub(tmp_path) as hub:
        service = make_service(hub, GuardSettings(rate=1e6, burst=10**6))
        api = TestClient(service.guarded, base_url="http://127.0.0.1/api/v1")
        body = {
            "name": "more",
            "source": {"files": "csv", "path": "in/more", "recursive": recursive},
            "columns": "k long, ts timestamp",
            "event_time": "ts",
        }
        made = api.post("/streams", json=body)
        assert made.status_code == 201, made.text
        assert api.post("/queries", json={"sql": QUERY, "name": "wide"}).status_code == 201
        here.put("a", "1,x,2024-01-01T00:00:00Z", "9,x,2024-01-01T00:00:00Z")
        here.put("more", "1,2024-01-01T00:00:00Z", "wrong,2024-01-01T00:00:00Z")
        wait_for(lambda: api.get("/queries/wide/results").json()["newest"] >= 1)
        (more / "file.csv").unlink()
        (more / "late.csv").symlink_to(secret / "passwords.csv")
        here.put("more", "9,2024-01-01T00:00:00Z")
        wait_for(lambda: api.get("/queries/wide/results").json()["newest"] >= 2)
        batches = [one["batch"] for one in api.get("/dead-letters").json()]
        told = "".join(api.get(f"/dead-letters/{batch}").text for batch in batches)
    assert "wrong" in told
    assert "tiger" not in told
    assert "passwords" not in told
