"""Line plots as PNG files, drawn with NumPy alone, so that benchmarks need no library for them.

Guarantees: the same series give the same file. Axes begin at 0, have five marks each, and end at the largest value.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

__all__ = ["plot_lines"]

WIDTH, HEIGHT = 960, 540
LEFT, RIGHT, TOP, BOTTOM = 110, 30, 50, 70  # margins in pixels
MARKS = 4  # besides that at 0
COLOURS = ((31, 119, 180), (214, 39, 40), (44, 160, 44), (148, 103, 189), (255, 127, 14), (23, 190, 207))
BLACK, GREY = (30, 30, 30), (225, 225, 225)

# The printable ASCII characters from the space on: five columns each, seven pixels high, the lowest bit on top.
_GLYPHS = bytes.fromhex(
    "0000000000" "00005f0000" "0007000700" "147f147f14" "242a7f2a12" "2313086462" "3649552250" "0005030000"
    "001c224100" "0041221c00" "2a1c7f1c2a" "08083e0808" "0050300000" "0808080808" "0060600000" "2010080402"
    "3e5149453e" "00427f4000" "4261514946" "2141454b31" "1814127f10" "2745454539" "3c4a494930" "0171090503"
    "3649494936" "064949291e" "0036360000" "0056360000" "0814224100" "1414141414" "0041221408" "0201510906"
    "324979413e" "7e1111117e" "7f49494936" "3e41414122" "7f4141221c" "7f49494941" "7f09090901" "3e4149497a"
    "7f0808087f" "00417f4100" "2040413f01" "7f08142241" "7f40404040" "7f020c027f" "7f0408107f" "3e4141413e"
    "7f09090906" "3e4151215e" "7f09192946" "4649494931" "01017f0101" "3f4040403f" "1f2040201f" "3f4038403f"
    "6314081463" "0708700807" "6151494543" "007f414100" "0204081020" "0041417f00" "0402010204" "4040404040"
    "0001020400" "2054545478" "7f48444438" "3844444420" "384444487f" "3854545418" "087e090102" "0c5252523e"
    "7f08040478" "00447d4000" "2040443d00" "7f10284400" "00417f4000" "7c04180478" "7c08040478" "3844444438"
    "7c14141408" "081414187c" "7c08040408" "4854545420" "043f444020" "3c4040207c" "1c2040201c" "3c4030403c"
    "4428102844" "0c5050503c" "4464544c44" "0008364100" "00007f0000" "0041360800" "0808081008"
)  # fmt: skip

_Pixels = NDArray[np.uint8]
_Colour = tuple[int, int, int]


def plot_lines(
    path: Path,
    series: Mapping[str, Sequence[tuple[float, float]]],
    *,
    title: str,
    across: str,
    up: str,
) -> None:
    """Write a plot with a line per series of points; ``across`` and ``up`` name the axes."""
    pixels = np.full((HEIGHT, WIDTH, 3), 255, dtype=np.uint8)
    most_x = max((x for points in series.values() for x, _ in points), default=0.0) or 1.0
    most_y = max((y for points in series.values() for _, y in points), default=0.0) or 1.0
    _draw_axes(pixels, most_x, most_y)
    _write(pixels, LEFT, 15, title, BLACK, size=2)
    _write(pixels, WIDTH - RIGHT - 6 * len(across), HEIGHT - 20, across, BLACK)
    _write(pixels, LEFT, TOP - 14, up, BLACK)
    place = LEFT
    for number, (name, points) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        corners = [_place(x / most_x, y / most_y) for x, y in points]
        for one, other in pairwise(corners):
            _draw_line(pixels, one, other, colour, thickness=2)
        _write(pixels, place, HEIGHT - 40, name, colour, size=2)
        place += 12 * (len(name) + 2)
    path.write_bytes(_png(pixels))


def _place(x: float, y: float) -> tuple[float, float]:
    """The pixel of a point, given as parts of the axes."""
    return LEFT + x * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - y * (HEIGHT - TOP - BOTTOM)


def _draw_axes(pixels: _Pixels, most_x: float, most_y: float) -> None:
    for mark in range(MARKS + 1):
        part = mark / MARKS
        _draw_line(pixels, _place(0, part), _place(1, part), GREY)
        _draw_line(pixels, _place(part, 0), _place(part, 1), GREY)
        x, y = _place(part, part)
        _write(pixels, round(x) - 10, HEIGHT - BOTTOM + 8, f"{part * most_x:,.4g}", BLACK)
        text = f"{part * most_y:,.0f}" if most_y >= 10 * MARKS else f"{part * most_y:.3g}"
        _write(pixels, LEFT - 8 - 6 * len(text), round(y) - 3, text, BLACK)
    _draw_line(pixels, _place(0, 0), _place(1, 0), BLACK)
    _draw_line(pixels, _place(0, 0), _place(0, 1), BLACK)


def _draw_line(
    pixels: _Pixels, one: tuple[float, float], other: tuple[float, float], colour: _Colour, thickness: int = 1
) -> None:
    count = int(max(abs(other[0] - one[0]), abs(other[1] - one[1]))) + 2
    columns = np.rint(np.linspace(one[0], other[0], count)).astype(int)
    rows = np.rint(np.linspace(one[1], other[1], count)).astype(int)
    for shift in range(thickness):
        pixels[np.clip(rows + shift, 0, HEIGHT - 1), np.clip(columns, 0, WIDTH - 1)] = colour


def _write(pixels: _Pixels, left: int, top: int, text: str, colour: _Colour, size: int = 1) -> None:
    """Write text; what is no ASCII is left blank."""
    for number, character in enumerate(text):
        code = ord(character) - 32
        glyph = _GLYPHS[5 * code : 5 * code + 5] if 0 <= code < len(_GLYPHS) // 5 else bytes(5)
        for i, column in enumerate(glyph):
            for row in range(7):
                if column >> row & 1:
                    x, y = left + size * (6 * number + i), top + size * row
                    pixels[max(0, y) : max(0, y + size), max(0, x) : max(0, x + size)] = colour


def _png(pixels: _Pixels) -> bytes:
    """The pixels as a PNG file: a header, the compressed rows, each after a byte 0 (no filter), and an end."""
    height, width, _ = pixels.shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], axis=1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in chunks
    )
