"""Several queries of four streams, planned and run together in a cold process, take a bounded time."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.shares import quick, seeds

LIMIT = 60  # seconds for a session, from the start of its process to its last result; it took 0.7 to 13
PROGRAM = """
import random, sys, tempfile
import weft
draw = random.Random(int(sys.argv[1]))
session = weft.Session(checkpoint=tempfile.mkdtemp(), execution="local")
names = ("a", "b", "c", "d")
for name in names:
    kinds = {column: weft.uniform(draw.choice([20, 200])) for column in ("k", "g", "h")}
    session.stream(name, weft.rate(300, ts=weft.timestamps(), **kinds), event_time="ts")
for number in range(3):
    order = draw.sample(names, 4)
    on = [f"{order[draw.randrange(place)]}.{draw.choice('kgh')} = {one}.{draw.choice('kgh')}"
          for place, one in enumerate(order) if place]
    on += [f"{draw.choice(names)}.k < {draw.randrange(5, 200)}"]
    inputs = ", ".join(f"{one} [RANGE {draw.choice([1, 2])} SECONDS]" for one in order)
    session.query(f"SELECT a.k FROM {inputs} WHERE {' AND '.join(on)}", name=f"q{number}", sink=weft.to_count())
session.start()
session.process_all_available()
session.stop()
print("done")
"""


@pytest.mark.ci
@pytest.mark.parametrize("seed", quick(seeds(2)))
def test_three_random_queries_in_a_cold_process(seed: int) -> None:
    """One such session once took more than a minute, and nobody knew why."""
    command = [sys.executable, "-X", "faulthandler", "-c", PROGRAM, str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
