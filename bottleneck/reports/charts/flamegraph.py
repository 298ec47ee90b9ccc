"""A flamegraph as SVG: a file of its own, or a part of a page. It needs nothing else and is readable without script.

The script is one for both: it finds each `svg.flamegraph` of the document that it stands in.
"""

from __future__ import annotations

import heapq
import html
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bottleneck.analysis.advice.hotspots import waiting_part
from bottleneck.reports.charts.collapsed import frame_label
from bottleneck.results.stacks import DEEPEST, Frame, Stack

MOST_BOXES = 6_000
"""Boxes that are drawn, the widest; browsers take long for more."""
WIDTH, ROW, TOP, MARGIN = 1200, 18, 64, 10
_CHARACTER = 6.6
"""Width of a character of the font."""
_LEAST_WIDTH = 0.4
"""Narrower boxes are left out; nobody could see them."""
# Neither XML nor a terminal knows them; lone halves of characters cannot be written at all.
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_COMPUTING, _WAITING = (246, 160, 92), (136, 178, 226)
_SCRIPT = Path(__file__).parent.with_name("templates") / "flamegraph.js"
_STYLE = (
    ".flamegraph text{font:11px ui-monospace,Menlo,Consolas,monospace;fill:#1b1b1b;pointer-events:none}"
    ".flamegraph .title{font-size:15px;font-weight:600}.flamegraph .note{fill:#5a5a5a}.flamegraph .box{cursor:pointer}"
    ".flamegraph .box:hover rect{stroke:#1b1b1b}.flamegraph .found rect{fill:#e879f9}"
    ".flamegraph .faded rect{opacity:.45}"
    ".flamegraph .button{cursor:pointer;pointer-events:all;text-decoration:underline}.flamegraph .hidden{display:none}"
)


@dataclass
class Node:
    """A function in the place where it was called; its callees stand on it."""

    frame: Frame | None
    samples: float = 0.0
    computing: float | None = 0.0
    callees: dict[Frame, Node] = field(default_factory=dict)

    def add(self, stack: Stack) -> None:
        """Count a stack from here on inwards."""
        node = self
        node._count(stack)
        for frame in stack.frames[:DEEPEST]:
            node = node.callees.setdefault(frame, Node(frame))
            node._count(stack)

    def _count(self, stack: Stack) -> None:
        self.samples += stack.samples
        unknown = self.computing is None or stack.computing is None
        self.computing = None if unknown else (self.computing or 0.0) + (stack.computing or 0.0)


@dataclass(frozen=True)
class Box:
    """A node in its place; positions and widths are parts of the whole."""

    node: Node
    depth: int
    left: float
    width: float


def render_flamegraph(stacks: Iterable[Stack], title: str, note: str = "") -> str:
    """Stacks as a file of its own, the outermost functions at the bottom."""
    drawn, height = _draw_all(stacks, TOP)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<svg xmlns="http://www.w3.org/2000/svg" class="flamegraph" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}">\n'
        f"<style>{_STYLE}</style>\n"
        f'<rect width="{WIDTH}" height="{height}" fill="#fbfaf8"/>\n'
        f'<text class="title" x="{MARGIN}" y="24">{_escape(title)}</text>\n'
        f'<text class="note" x="{MARGIN}" y="44">{_escape(note)}</text>\n'
        f'<text class="reset button hidden" x="{WIDTH - 260}" y="24">reset zoom</text>\n'
        f'<text class="search button hidden" x="{WIDTH - 160}" y="24">search</text>\n'
        f'<text class="share note" x="{WIDTH - 260}" y="44"></text>\n'
        f"{drawn}\n"
        f"<script><![CDATA[\n{script()}\n]]></script>\n</svg>\n"
    )


def draw_flamegraph(stacks: Iterable[Stack], title: str) -> str:
    """Stacks as an element of an HTML page, which has the script, and controls if it likes."""
    drawn, height = _draw_all(stacks, 0)
    return (
        f'<svg class="flamegraph" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{_escape(title)}">\n'
        f"<style>{_STYLE}</style>\n{drawn}\n</svg>"
    )


def script() -> str:
    """What makes flamegraphs zoom and search."""
    return _SCRIPT.read_text(encoding="utf-8")


def _draw_all(stacks: Iterable[Stack], top: int) -> tuple[str, int]:
    """Return the boxes as one element, and the height that they need below `top`."""
    root = Node(None)
    for stack in stacks:
        root.add(stack)
    boxes = list(_boxes(root))
    height = top + (max((box.depth for box in boxes), default=0) + 1) * ROW + 2 * MARGIN
    drawn = "\n".join(_draw(box, root.samples, height) for box in boxes)
    return f'<g class="boxes">\n{drawn}\n</g>', height


def _boxes(root: Node) -> Iterator[Box]:
    """Every node that is wide enough to be seen, the widest first, and so callers before callees."""
    if root.samples <= 0:
        return
    found, drawn = 1, 0
    waiting = [(-1.0, 0, Box(root, 0, 0.0, 1.0))]
    while waiting and drawn < MOST_BOXES:
        box = heapq.heappop(waiting)[2]
        drawn += 1
        yield box
        left = box.left
        for callee in sorted(box.node.callees.values(), key=_label):
            width = callee.samples / root.samples
            if width * (WIDTH - 2 * MARGIN) >= _LEAST_WIDTH:
                heapq.heappush(waiting, (-width, found, Box(callee, box.depth + 1, left, width)))
                found += 1
            left += width


def _label(node: Node) -> str:
    return "all" if node.frame is None else frame_label(node.frame)


def _draw(box: Box, total: float, height: int) -> str:
    inner = WIDTH - 2 * MARGIN
    x, width = MARGIN + box.left * inner, box.width * inner
    y = height - MARGIN - (box.depth + 1) * ROW
    label = _label(box.node)
    waiting = waiting_part(box.node.samples, box.node.computing)
    tip = f"{label}\n{100 * box.node.samples / total:.1f} % of the samples"
    if waiting is not None:
        tip += f", {100 * waiting:.0f} % of that waiting"
    return (
        f'<g class="box" data-left="{box.left:.6f}" data-width="{box.width:.6f}" data-depth="{box.depth}" '
        f'data-label="{_escape(label)}"><title>{_escape(tip)}</title>'
        f'<rect x="{x:.2f}" y="{y}" width="{max(width - 0.5, 0.2):.2f}" height="{ROW - 1}" rx="1" '
        f'fill="{_colour(waiting)}"/>'
        f'<text x="{x + 4:.2f}" y="{y + 13}">{_escape(_fit(label, width - 6))}</text></g>'
    )


def _fit(label: str, width: float) -> str:
    room = int(width / _CHARACTER)
    if len(label) <= room:
        return label
    return label[: room - 1] + "…" if room >= 3 else ""


def _colour(waiting: float | None) -> str:
    """Warm where it computes, blue where it waits."""
    part = waiting or 0.0
    mixed = (round(warm + (cold - warm) * part) for warm, cold in zip(_COMPUTING, _WAITING, strict=True))
    return "#" + "".join(f"{value:02x}" for value in mixed)


def _escape(text: str) -> str:
    return html.escape(_FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text), quote=True).replace("\n", "&#10;")
