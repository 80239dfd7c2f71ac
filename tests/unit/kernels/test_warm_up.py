"""After warming up, the first batch of a stream does not wait for the compiler."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from weft.bucket import build, by_hash
from weft.kernels import equal, expand
from weft.kernels.probe import in_order, probe
from weft.kernels.ranges import Window
from weft.kernels.warm_up import warm_up


def compiled_variants() -> list[int]:
    functions: list[Any] = [equal.find, equal.order_probes, expand.fill]
    return [len(function.signatures) for function in functions]


def test_nothing_is_left_to_compile() -> None:
    warm_up()
    before = compiled_variants()
    batch = pa.record_batch({"k": np.arange(50), "ts": pa.array(np.arange(50), pa.timestamp("us"))})
    run = build(batch, layout=by_hash("k"), event_time="ts")
    matches = probe(
        in_order([batch.column("k")]), [run], by_hash("k"), window=Window.around(np.arange(50), 0, 0)
    )
    assert len(matches) == 50
    assert compiled_variants() == before
