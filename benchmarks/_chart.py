"""Line charts as PNG files, drawn with NumPy alone.

Guarantees: the same arguments give the same bytes. Texts are in ASCII; other characters are shown as a question mark.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

__all__ = ["Chart", "write_chart"]

WIDTH, HEIGHT = 1100, 640
LEFT, RIGHT, TOP, BOTTOM = 110, 300, 60, 80  # margins
BLACK, GREY = (30, 30, 30), (215, 215, 215)
COLOURS = (
    *((31, 119, 180), (214, 39, 40), (44, 160, 44), (255, 127, 14), (148, 103, 189)),
    *((140, 86, 75), (23, 190, 207), (127, 127, 127), (188, 189, 34), (227, 119, 194)),
)

# The characters from space to ~, each five columns of eight dots, the lowest bit at the top.
_FONT = bytes.fromhex(
    "0000000000 00005F0000 0007000700 147F147F14 242A7F2A12 2313086462 3649562050 0008070300 001C224100"
    "0041221C00 2A1C7F1C2A 08083E0808 0080703000 0808080808 0000606000 2010080402 3E5149453E 00427F4000"
    "7249494946 2141494D33 1814127F10 2745454539 3C4A494931 4121110907 3649494936 464949291E 0000140000"
    "0040340000 0008142241 1414141414 0041221408 0201590906 3E415D594E 7C1211127C 7F49494936 3E41414122"
    "7F4141413E 7F49494941 7F09090901 3E41415173 7F0808087F 00417F4100 2040413F01 7F08142241 7F40404040"
    "7F021C027F 7F0408107F 3E4141413E 7F09090906 3E4151215E 7F09192946 2649494932 03017F0103 3F4040403F"
    "1F2040201F 3F4038403F 6314081463 0304780403 6159494D43 007F414141 0204081020 004141417F 0402010204"
    "4040404040 0003070800 2054547840 7F28444438 3844444428 384444287F 3854545418 00087E0902 18A4A49C78"
    "7F08040478 00447D4000 2040403D00 7F10284400 00417F4000 7C04780478 7C08040478 3844444438 FC18242418"
    "18242418FC 7C08040408 4854545424 04043F4424 3C4040207C 1C2040201C 3C4030403C 4428102844 4C9090907C"
    "4464544C44 0008364100 0000770000 0041360800 0201020402"
)

Canvas = npt.NDArray[np.uint8]
Colour = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines over common positions: ``ticks`` are the labels of the positions; with ``log`` heights are logarithms."""

    title: str
    x_label: str
    y_label: str
    ticks: Sequence[str]
    lines: Mapping[str, Sequence[float]]
    log: bool = False


def write_chart(path: Path, chart: Chart) -> None:
    """Draw a chart and write it as a PNG file."""
    canvas = np.full((HEIGHT, WIDTH, 3), 255, np.uint8)
    _text(canvas, LEFT, 10, chart.title, BLACK)
    _text(canvas, LEFT, HEIGHT - 30, chart.x_label, BLACK)
    _text(canvas, 10, TOP - 26, chart.y_label, BLACK)
    heights = _heights(chart)
    for value, label in _marks(chart):
        at = heights(value)
        canvas[at, LEFT : WIDTH - RIGHT] = GREY
        _text(canvas, LEFT - 12 * len(label) - 8, at - 7, label, BLACK)
    places = np.linspace(LEFT + 10, WIDTH - RIGHT - 10, max(2, len(chart.ticks))).astype(int)
    for place, tick in zip(places, chart.ticks, strict=False):
        canvas[HEIGHT - BOTTOM : HEIGHT - BOTTOM + 6, place] = BLACK
        _text(canvas, place - 6 * len(tick), HEIGHT - BOTTOM + 12, tick, BLACK)
    canvas[TOP : HEIGHT - BOTTOM, LEFT] = canvas[HEIGHT - BOTTOM, LEFT : WIDTH - RIGHT] = BLACK
    for number, (name, values) in enumerate(chart.lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        points = [(int(x), heights(y)) for x, y in zip(places, values, strict=False)]
        for begin, end in pairwise(points):
            _line(canvas, begin, end, colour)
        beside = TOP + 26 * number
        _line(canvas, (WIDTH - RIGHT + 15, beside + 7), (WIDTH - RIGHT + 45, beside + 7), colour)
        _text(canvas, WIDTH - RIGHT + 55, beside, name, BLACK)
    path.write_bytes(_png(canvas))


def _range(chart: Chart) -> tuple[float, float]:
    values = [value for line in chart.lines.values() for value in line if value > 0 or not chart.log]
    low, high = min(values, default=0.0), max(values, default=1.0)
    if chart.log:
        return 10.0 ** np.floor(np.log10(low or 1)), 10.0 ** np.ceil(np.log10(high or 1) + 1e-9)
    return min(0.0, low), high * 1.05 or 1.0


def _heights(chart: Chart) -> Callable[[float], int]:
    """A function from values to rows of the canvas."""
    low, high = _range(chart)

    def height(value: float) -> int:
        if chart.log:
            part = (np.log10(max(value, low)) - np.log10(low)) / (np.log10(high) - np.log10(low))
        else:
            part = (value - low) / (high - low)
        return int(HEIGHT - BOTTOM - part * (HEIGHT - BOTTOM - TOP))

    return height


def _marks(chart: Chart) -> list[tuple[float, str]]:
    low, high = _range(chart)
    if chart.log:
        powers = range(round(np.log10(low)), round(np.log10(high)) + 1)
        return [(10.0**power, f"{10.0**power:g}") for power in powers]
    return [(value, f"{value:.3g}") for value in np.linspace(low, high, 6)]


def _line(canvas: Canvas, begin: tuple[int, int], end: tuple[int, int], colour: Colour) -> None:
    steps = max(abs(end[0] - begin[0]), abs(end[1] - begin[1]), 1) + 1
    across = np.linspace(begin[0], end[0], steps).astype(int)
    down = np.linspace(begin[1], end[1], steps).astype(int)
    for x in (-1, 0, 1):
        for y in (-1, 0, 1):
            canvas[np.clip(down + y, 0, HEIGHT - 1), np.clip(across + x, 0, WIDTH - 1)] = colour


def _text(canvas: Canvas, left: int, top: int, text: str, colour: Colour) -> None:
    """Write a text, each dot of a character as two by two."""
    for place, character in enumerate(text):
        code = ord(character) - 32 if 32 <= ord(character) < 127 else ord("?") - 32
        columns = np.frombuffer(_FONT, np.uint8, 5, 5 * code)
        dots = (columns[None, :] >> np.arange(8, dtype=np.uint8)[:, None]) & 1
        large = np.kron(dots, np.ones((2, 2), np.uint8)).astype(bool)
        x = left + 12 * place
        if x >= 0 and x + 10 <= WIDTH:
            canvas[top : top + 16, x : x + 10][large] = colour


def _png(canvas: Canvas) -> bytes:
    lines = np.concatenate([np.zeros((HEIGHT, 1), np.uint8), canvas.reshape(HEIGHT, -1)], axis=1)
    header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b""))
    packed = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(packed)
