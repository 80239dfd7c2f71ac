"""The files of examples/kubernetes fit together, and name what there is."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "kubernetes"


def documents() -> dict[str, dict[str, Any]]:
    """The documents of the application, by kind."""
    text = (FOLDER / "spark-application.yaml").read_text(encoding="utf-8")
    return {one["kind"]: one for one in yaml.safe_load_all(text)}


def test_the_application_runs_what_the_image_has() -> None:
    """A pod that cannot start says so only in the logs of the cluster."""
    spec = documents()["SparkApplication"]["spec"]
    docker = (FOLDER / "Dockerfile").read_text(encoding="utf-8")
    program = spec["mainApplicationFile"].removeprefix("local://")
    assert f"COPY examples/kubernetes/program.py {program}" in docker
    assert re.search(r"^FROM apache/spark:([\d.]+)-python3$", docker, re.M)[1] == spec["sparkVersion"]  # type: ignore[index]
    assert spec["image"] in docker
    for copied in re.findall(r"^COPY (.+) \S+$", docker, re.M):
        assert all((ROOT / one).exists() for one in copied.split())


def test_the_image_installs_what_weft_needs() -> None:
    """`--no-deps` would hide a dependency that was added later."""
    docker = (FOLDER / "Dockerfile").read_text(encoding="utf-8")
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    needed = ast.literal_eval(re.search(r"^dependencies = (\[.*?^\])", project, re.M | re.S)[1])  # type: ignore[index]
    missing = [one for one in needed if f'"{one}"' not in docker and not one.startswith("pyspark")]
    assert not missing


def test_volumes_and_settings_exist() -> None:
    found = documents()
    spec, claim = found["SparkApplication"]["spec"], found["PersistentVolumeClaim"]
    volumes = {one["name"]: one["persistentVolumeClaim"]["claimName"] for one in spec["volumes"]}
    for role in ("driver", "executor"):
        mounts = {one["name"]: one["mountPath"] for one in spec[role]["volumeMounts"]}
        assert {volumes[name] for name in mounts} == {claim["metadata"]["name"]}
        assert set(mounts.values()) == set(spec["arguments"])
    assert hasattr(import_module(spec["sparkConf"]["spark.python.daemon.module"]), "main")
