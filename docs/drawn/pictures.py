"""The pictures of the concepts, as SVG: `python -m docs.drawn.pictures` writes them into docs/images/.

Guarantees: they are made of shapes and texts alone, in colours that can be read on light and on dark, and nothing in
them is fetched from elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from pathlib import Path

IMAGES = Path(__file__).parents[1] / "images"
BLUE, ORANGE, GREEN, GREY, RED = "#3b82c4", "#d9822b", "#2f9e6e", "#8a8f98", "#c94f4f"


@dataclass
class Picture:
    """Shapes on a sheet of a size, with a title for those who cannot see it."""

    width: int
    height: int
    title: str
    shapes: list[str] = field(default_factory=list)

    def text(
        self, x: float, y: float, text: str, *, size: int = 14, color: str = GREY, anchor: str = "start"
    ) -> None:
        """A line of text whose baseline begins (or is centred, or ends) at a point."""
        self.shapes.append(
            f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{color}" text-anchor="{anchor}">{escape(text)}</text>'
        )

    def line(
        self,
        x: float,
        y: float,
        to_x: float,
        to_y: float,
        *,
        color: str = GREY,
        dashed: bool = False,
        arrow: bool = False,
    ) -> None:
        """A line from one point to another."""
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        head = ' marker-end="url(#head)"' if arrow else ""
        self.shapes.append(
            f'<line x1="{x:g}" y1="{y:g}" x2="{to_x:g}" y2="{to_y:g}" stroke="{color}" stroke-width="1.6"{dash}{head}/>'
        )

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        text: str = "",
        *,
        color: str = BLUE,
        filled: float = 0.15,
    ) -> None:
        """A box with a text in its middle."""
        self.shapes.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6" '
            f'fill="{color}" fill-opacity="{filled:g}" stroke="{color}" stroke-width="1.4"/>'
        )
        lines = text.split("\n") if text else []
        for number, part in enumerate(lines):
            middle = y + height / 2 + 5 + 17 * (number - (len(lines) - 1) / 2)
            self.text(x + width / 2, middle, part, color=color, anchor="middle")

    def dot(self, x: float, y: float, *, color: str = BLUE, label: str = "", hollow: bool = False) -> None:
        """A tuple on a line of time, with its name above."""
        fill = "none" if hollow else color
        self.shapes.append(
            f'<circle cx="{x:g}" cy="{y:g}" r="6" fill="{fill}" stroke="{color}" stroke-width="1.8"/>'
        )
        if label:
            self.text(x, y - 12, label, color=color, anchor="middle", size=13)

    def time(self, y: float, name: str, *, left: float = 110, right: float | None = None) -> None:
        """A line of time with the name of its stream."""
        self.text(8, y + 5, name)
        self.line(left, y, self.width - 20 if right is None else right, y, arrow=True)

    def svg(self) -> str:
        """The picture as text."""
        head = (
            '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
            'orient="auto">'
            f'<path d="M0 0 L8 4 L0 8 z" fill="{GREY}"/></marker></defs>'
        )
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
            f'font-family="system-ui, sans-serif" role="img"><title>{escape(self.title)}</title>{head}\n'
            + "\n".join(self.shapes)
            + "\n</svg>\n"
        )


def window() -> Picture:
    """What `[RANGE 1 MINUTE]` lets join."""
    p = Picture(
        720, 210, "A window of one minute: order 1 joins its payment, order 2 is too old for its payment"
    )
    p.box(250, 36, 170, 150, color=BLUE, filled=0.08)
    p.text(335, 204, "1 minute before payment 1", anchor="middle", size=12, color=BLUE)
    p.time(70, "orders")
    p.time(150, "payments")
    p.dot(150, 70, color=ORANGE, label="order 2")
    p.dot(330, 70, label="order 1")
    p.dot(420, 150)
    p.text(414, 172, "payment 1", color=BLUE, anchor="end", size=13)
    p.dot(620, 150, color=ORANGE, label="payment 2")
    p.line(330, 78, 416, 144, color=GREEN)
    p.text(345, 122, "joins", color=GREEN, size=13, anchor="end")
    p.line(156, 76, 612, 146, color=RED, dashed=True)
    p.text(440, 98, "more than a minute: no result", color=RED, size=13)
    p.text(700, 172, "event time", size=12, anchor="end")
    return p


def watermark() -> Picture:
    """Rows on time, late, and ahead of the clock."""
    p = Picture(720, 190, "The watermark is the latest event time less the lateness; rows behind it are late")
    p.time(95, "event time")
    p.box(390, 60, 130, 70, color=BLUE, filled=0.08)
    p.line(390, 35, 390, 140, color=BLUE, dashed=True)
    p.text(390, 26, "watermark", color=BLUE, anchor="middle")
    p.text(455, 150, "lateness", color=BLUE, anchor="middle", size=13)
    p.line(520, 35, 520, 140, color=GREY, dashed=True)
    p.text(525, 26, "latest so far", size=13)
    for x in (200, 300, 350, 520):
        p.dot(x, 95)
    p.dot(450, 95, color=GREEN, label="on time")
    p.dot(250, 95, color=RED, label="late", hollow=True)
    p.dot(690, 95, color=RED, hollow=True)
    p.text(712, 122, "far ahead of the clock:", color=RED, anchor="end", size=13)
    p.text(712, 138, "a dead letter, moves nothing", color=RED, anchor="end", size=13)
    p.text(
        250,
        178,
        'dropped and counted, or joined with what is left (late="join")',
        color=RED,
        anchor="middle",
        size=13,
    )
    return p


def outer() -> Picture:
    """When the row of an order without a payment comes."""
    p = Picture(
        720, 210, "An order without a payment is given when the watermark of payments has passed its window"
    )
    p.time(60, "orders")
    p.time(140, "payments")
    p.dot(180, 60, label="order 1")
    p.box(180, 118, 200, 44, color=BLUE, filled=0.08)
    p.text(280, 182, "a payment could come in here", color=BLUE, anchor="middle", size=13)
    p.dot(250, 140, color=GREY)
    p.text(250, 110, "of another order", anchor="middle", size=12)
    p.dot(470, 140, color=GREY)
    p.line(420, 40, 420, 165, color=GREEN, dashed=True)
    p.text(420, 30, "watermark of payments", color=GREEN, anchor="middle", size=13)
    p.text(430, 88, "passed: (order 1, NULL) is given,", color=GREEN, size=13)
    p.text(430, 104, "once, and never taken back", color=GREEN, size=13)
    return p


def exactly_once() -> Picture:
    """The steps of a batch, and what a death between them means."""
    p = Picture(760, 170, "A batch: its plan is written, tasks run, results are committed, then the manifest")
    steps = (
        "plan N\nis written",
        "tasks run\nbatch N",
        "results of N\nin their sinks",
        "manifest N\nis written",
    )
    for number, text in enumerate(steps):
        p.box(20 + 185 * number, 30, 150, 56, text, color=GREEN if number == 3 else BLUE)
        if number < 3:
            p.line(170 + 185 * number, 58, 203 + 185 * number, 58, arrow=True)
    p.text(
        20,
        120,
        "killed here: batch N is run again from manifest N−1, by the plan that was written,",
        color=RED,
        size=13,
    )
    p.text(
        20,
        138,
        "with the same input and the same result; sinks take a batch that they have already for done",
        color=RED,
        size=13,
    )
    p.line(20, 102, 570, 102, color=RED)
    p.text(650, 120, "committed", color=GREEN, size=13, anchor="middle")
    p.line(578, 102, 725, 102, color=GREEN)
    return p


def hops() -> Picture:
    """A three-way join on two keys: where a tuple goes."""
    p = Picture(
        760,
        250,
        "A view probes the store of videos by vid, moves once, and probes the store of comments by user",
    )
    p.box(10, 90, 110, 56, "a view\narrives", color=ORANGE)
    p.box(190, 40, 210, 156, color=BLUE, filled=0.05)
    p.text(295, 32, "hop 1: partitioned by vid", color=BLUE, anchor="middle", size=13)
    p.box(210, 60, 170, 50, "store of videos\nby vid", color=BLUE)
    p.box(210, 130, 170, 50, "store of views\nby vid", color=BLUE)
    p.box(500, 40, 210, 156, color=GREEN, filled=0.05)
    p.text(605, 32, "hop 2: partitioned by user", color=GREEN, anchor="middle", size=13)
    p.box(520, 60, 170, 50, "store of comments\nby user", color=GREEN)
    p.box(520, 130, 170, 50, "store of views\nby user", color=GREEN)
    p.line(120, 110, 206, 86, arrow=True)
    p.text(150, 84, "probe", size=13)
    p.line(120, 130, 206, 154, arrow=True)
    p.text(144, 164, "store", size=13)
    p.line(380, 86, 516, 86, arrow=True)
    p.text(450, 74, "matches move", size=13, anchor="middle")
    p.line(690, 86, 745, 86, arrow=True)
    p.text(752, 106, "result", size=13, anchor="end")
    p.text(
        380,
        232,
        "A hop is a change of key. A join on one key is one hop, however many streams it has.",
        anchor="middle",
        size=13,
    )
    return p


def sharing() -> Picture:
    """Two queries over one store."""
    p = Picture(760, 220, "Two queries share a store; each tuple carries the set of queries it is for")
    p.box(10, 40, 150, 50, "views", color=ORANGE)
    p.box(10, 130, 150, 50, "videos", color=ORANGE)
    p.box(260, 30, 220, 160, color=BLUE, filled=0.06)
    p.text(370, 22, "one store of views", color=BLUE, anchor="middle", size=13)
    for number, (row, queries) in enumerate(
        (("view 1", "{ US, short }"), ("view 2", "{ US }"), ("view 3", "{ short }"))
    ):
        p.text(280, 66 + 34 * number, row, color=BLUE)
        p.text(460, 66 + 34 * number, queries, color=GREEN, anchor="end")
    p.text(370, 176, "tuples of no query are not stored", anchor="middle", size=12)
    p.line(160, 65, 256, 80, arrow=True)
    p.line(160, 155, 256, 140, arrow=True)
    p.text(206, 126, "probe once", size=13, anchor="middle")
    p.box(590, 40, 150, 50, "query US", color=GREEN)
    p.box(590, 130, 150, 50, "query short", color=GREEN)
    p.line(480, 80, 586, 65, arrow=True)
    p.line(480, 140, 586, 155, arrow=True)
    return p


def adaptation() -> Picture:
    """An epoch ends, a better plan is found beside the batches, and taken between two of them."""
    p = Picture(
        760,
        190,
        "While batches run by plan A, a planner looks for a better one; between two batches plan B takes over",
    )
    p.text(10, 62, "batches")
    for number in range(8):
        color = BLUE if number < 5 else GREEN
        p.box(100 + 78 * number, 36, 66, 42, "A" if number < 5 else "B", color=color)
    p.text(10, 132, "planner")
    p.box(256, 106, 200, 42, "looks for a better plan", color=ORANGE)
    p.line(240, 80, 262, 104, arrow=True)
    p.text(236, 100, "statistics of the epoch", size=13, anchor="end")
    p.line(456, 118, 488, 84, arrow=True)
    p.text(500, 118, "pays for its change? then it is taken,", size=13)
    p.text(500, 134, "between two batches, with its reason", size=13)
    return p


def query_path() -> Picture:
    """How a text becomes what runs."""
    p = Picture(
        820,
        230,
        "A text is parsed and bound to a query, planned, lowered to a graph, and run",
    )
    steps = (
        ("SQL, builder", "", GREY),
        ("Query", "logical/", BLUE),
        ("WorkloadPlan", "plan/", BLUE),
        ("PhysicalGraph", "plan/", BLUE),
        ("ExecutableGraph", "runtime/program/", GREEN),
    )
    for number, (thing, room, color) in enumerate(steps):
        p.box(10 + 165 * number, 40, 130, 52, f"{thing}\n{room}" if room else thing, color=color)
    acts = (("parse, bind", "sql/"), ("plan", "optimizer/"), ("lower", "plan/"), ("run", "runtime/"))
    for number, (act, room) in enumerate(acts):
        p.line(140 + 165 * number, 66, 172 + 165 * number, 66, arrow=True)
        p.text(157 + 165 * number, 30, act, anchor="middle", size=13)
        p.text(157 + 165 * number, 110, room, anchor="middle", size=12)
    p.box(175, 150, 130, 52, "Statistics\nstats/", color=ORANGE)
    p.box(340, 150, 160, 52, "the plan that runs,\nwhat is stored", color=ORANGE)
    p.line(290, 150, 350, 96, arrow=True)
    p.line(410, 150, 400, 96, arrow=True)
    p.box(560, 150, 150, 52, "explain()\nwhat runs, in words", color=GREY)
    p.line(580, 94, 610, 146, dashed=True, arrow=True)
    return p


def batch_path() -> Picture:
    """What happens in one batch, in the driver and in its tasks."""
    p = Picture(
        820, 260, "The loop looks, decides, writes the plan, executes, commits results and the manifest"
    )
    p.text(10, 22, "the loop, in the driver: runtime/loop/", size=13, color=BLUE)
    steps = (
        "look\nsources offer",
        "decide\ninput, queries",
        "write the plan\nruntime/log/",
        "execute",
        "commit results\nruntime/output/",
        "commit batch\nruntime/log/",
    )
    for number, text in enumerate(steps):
        p.box(10 + 135 * number, 34, 118, 52, text, color=BLUE)
        if number < 5:
            p.line(128 + 135 * number, 60, 142 + 135 * number, 60, arrow=True)
    p.text(420, 136, "the tasks: runtime/task/", size=13, color=GREEN)
    for number, text in enumerate(("read, admit", "route", "store, probe\nruntime/hop/", "outlet")):
        p.box(290 + 128 * number, 146, 116, 52, text, color=GREEN)
        if number < 3:
            p.line(406 + 128 * number, 172, 415 + 128 * number, 172, arrow=True)
    p.line(450, 88, 340, 142, arrow=True)
    p.line(720, 144, 620, 90, arrow=True)
    p.text(690, 116, "reports, parts of sinks", size=12)
    p.text(604, 222, "one hop for each change of key", size=12, anchor="middle")
    p.line(745, 88, 745, 100)
    p.line(745, 100, 70, 100, dashed=True)
    p.line(70, 100, 70, 90, arrow=True)
    p.text(160, 116, "the next batch", size=12, anchor="middle")
    return p


PICTURES = {
    "window": window,
    "watermark": watermark,
    "outer": outer,
    "exactly-once": exactly_once,
    "hops": hops,
    "sharing": sharing,
    "adaptation": adaptation,
    "query-path": query_path,
    "batch-path": batch_path,
}


def write_pictures() -> None:
    """Write all pictures into the folder of images."""
    for name, draw in PICTURES.items():
        (IMAGES / f"{name}.svg").write_text(draw().svg(), encoding="utf-8")


if __name__ == "__main__":
    write_pictures()
