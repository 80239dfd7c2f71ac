"""Results of benchmarks as files that are committed, and what has become worse since.

Guarantees: a result is compared only with one of the same size and arguments. A file has the machine and the versions,
so that who reads it knows what it was measured on; they are not compared, since a ratio to a peer in the same run means
the same elsewhere, as far as it means anything.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
WORSE = 0.9  # a ratio below so much of the committed one is named
_PACKAGES = ("weft", "pyarrow", "numpy", "numba", "pyspark", "duckdb", "polars")


@dataclass(frozen=True, slots=True)
class Result:
    """What a benchmark gave, at which size, in how many seconds, on which machine."""

    name: str
    size: str
    arguments: tuple[str, ...]
    seconds: float
    output: str
    ratios: Mapping[str, float]
    judged: tuple[tuple[str, bool | None], ...]
    troubles: tuple[str, ...]
    machine: Mapping[str, str]
    versions: Mapping[str, str]


def machine() -> dict[str, str]:
    """What this machine is."""
    found = {"cores": str(os.cpu_count()), "system": platform.platform(), "processor": platform.machine()}
    memory = Path("/proc/meminfo")
    if memory.exists():
        kilobytes = int(memory.read_text(encoding="ascii").split()[1])
        found["memory"] = f"{kilobytes / 1e6:.0f} GB"
    return found


def versions() -> dict[str, str]:
    """The versions of Python and of the packages that matter."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def save(folder: Path, result: Result) -> None:
    """Keep a result as the one to compare with; one without ratios, or that failed, is not kept."""
    if not result.ratios or result.troubles:
        return
    folder.mkdir(parents=True, exist_ok=True)
    plain = asdict(result)
    ratios = {what: round(ratio, 3) for what, ratio in result.ratios.items()}
    text = json.dumps({**plain, "ratios": ratios}, indent=2, ensure_ascii=False)
    (folder / f"{result.name}.json").write_text(text + "\n", encoding="utf-8")


def committed(folder: Path, result: Result) -> Result | None:
    """The result that was committed of the same benchmark at the same size; None if there is none."""
    file = folder / f"{result.name}.json"
    if not file.exists():
        return None
    plain = json.loads(file.read_text(encoding="utf-8"))
    lists = {name: tuple(plain[name]) for name in ("arguments", "troubles")}
    known = Result(**{**plain, **lists, "judged": tuple(tuple(one) for one in plain["judged"])})
    return known if (known.size, known.arguments) == (result.size, result.arguments) else None


def worse(result: Result, known: Result | None) -> list[str]:
    """The ratios that are more than a tenth worse than the committed ones, or that are gone, a line each."""
    found = []
    for what, then in ({} if known is None or result.troubles else known.ratios).items():
        now = result.ratios.get(what)
        if now is None:
            found.append(f"{result.name}: {what} was {then:.2f} × and was not measured")
        elif now < WORSE * then:
            found.append(f"{result.name}: {what} is {now:.2f} ×, more than a tenth less than {then:.2f} ×")
    return found
