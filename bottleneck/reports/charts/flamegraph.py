"""A flamegraph as SVG: a file of its own, or a part of a page. It needs nothing else and is readable without script.

The script is one for both: it finds each `svg.flamegraph` of the document that it stands in.
"""

from __future__ import annotations

import heapq
import html
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bottleneck.analysis.advice.hotspots import waiting_part
from bottleneck.reports.charts.collapsed import frame_label
from bottleneck.results.stacks import DEEPEST, Frame, Stack

MOST_BOXES = 6_000
"""Boxes that are drawn, the widest; browsers take long for more."""
WIDTH, ROW, TOP, MARGIN = 1200, 18, 84, 10
_CHARACTER = 6.6
"""Width of a character of the font."""
_LEAST_WIDTH = 0.4
"""Narrower boxes are left out; nobody could see them."""
# Neither XML nor a terminal knows them; lone halves of characters cannot be written at all.
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_COLOURS = ("#4a8fd0", "#d9772b", "#4f9a5b", "#a678c8", "#d46a94", "#2f9a9a", "#98892f")
"""Of stages. Each has a contrast of 3 at least with a light page and a dark one, and of 4.5 with its letters."""
SEVERAL = "#8b8f98"
_NUMBERS = {name: at for at, name in enumerate(("load", "augment", "collate", "handoff", "finish", "copy", "other"))}
_OF_ONE_STAGE = 0.95
"""The share of a function's samples from which on it has the colour of a stage."""
_MOSTLY = 0.5
_LIBRARIES = {
    *("PIL", "accelerate", "albumentations", "av", "bottleneck", "cv2", "datasets", "decord"),
    *("detectron2", "ffcv", "fsspec", "h5py", "imageio", "kornia", "lightning", "monai", "nibabel"),
    *("numpy", "pandas", "pyarrow", "pytorch_lightning", "scipy", "skimage", "sklearn", "soundfile"),
    *("streaming", "timm", "tokenizers", "torch", "torchaudio", "torchcodec", "torchdata"),
    *("torchvision", "transformers", "webdataset", "zarr"),
}
"""Besides Python's own; what is missing here is shown like the user's code."""
_SCRIPT = Path(__file__).parent.with_name("templates") / "flamegraph.js"
_STYLE = "".join(f".stage-{at} rect{{fill:{colour}}}" for at, colour in enumerate(_COLOURS)) + (
    f".several rect{{fill:{SEVERAL}}}"
    ".flamegraph text{font:11px ui-monospace,Menlo,Consolas,monospace;fill:#1b1b1b;pointer-events:none}"
    ".flamegraph .title{font-size:15px;font-weight:600}.flamegraph .note{fill:#5a5a5a}.flamegraph .box{cursor:pointer}"
    ".flamegraph .box:hover rect{stroke:#1b1b1b}.flamegraph .waits rect{stroke:#1b1b1b;stroke-dasharray:2 3}"
    ".flamegraph .own text{font-weight:700}.flamegraph .faded rect{opacity:.45}"
    ".flamegraph .found rect{fill:#d154e3;stroke:#1b1b1b;stroke-dasharray:none}"
    ".flamegraph .box:focus{outline:none}.flamegraph .box:focus-visible rect{stroke:#1b1b1b;stroke-width:3}"
    ".flamegraph .button{cursor:pointer;pointer-events:all;text-decoration:underline}.flamegraph .hidden{display:none}"
)


@dataclass
class Node:
    """A function in the place where it was called; its callees stand on it."""

    frame: Frame | None
    samples: float = 0.0
    computing: float | None = 0.0
    callees: dict[Frame, Node] = field(default_factory=dict)
    stages: Counter[str | None] = field(default_factory=Counter)

    @property
    def stage(self) -> str | None:
        """The stage that it works for; None for several, or where that is unknown."""
        stage, samples = self.stages.most_common(1)[0] if self.stages else (None, 0.0)
        return stage if samples >= _OF_ONE_STAGE * self.samples else None

    def add(self, stack: Stack) -> None:
        """Count a stack from here on inwards."""
        node = self
        node._count(stack)
        for frame in stack.frames[:DEEPEST]:
            node = node.callees.setdefault(frame, Node(frame))
            node._count(stack)

    def _count(self, stack: Stack) -> None:
        self.samples += stack.samples
        self.stages[stack.stage] += stack.samples  # type: ignore[assignment]  # counters count anything
        unknown = self.computing is None or stack.computing is None
        self.computing = None if unknown else (self.computing or 0.0) + (stack.computing or 0.0)


@dataclass(frozen=True)
class Box:
    """A node in its place; positions and widths are parts of the whole."""

    node: Node
    depth: int
    left: float
    width: float
    caller: int
    """Its number among the boxes; -1 for none."""


@dataclass(frozen=True)
class Flamegraph:
    """A flamegraph as an element of a page, and what its colours mean."""

    title: str
    svg: str
    legend: tuple[tuple[str, str], ...]
    """The stages in it, and their colours."""


def render_flamegraph(stacks: Iterable[Stack], title: str, note: str = "") -> str:
    """Stacks as a file of its own, the outermost functions at the bottom."""
    stacks = tuple(stacks)
    numbers = _numbers(_seen(stacks))
    drawn, height = _draw_all(stacks, TOP, numbers)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<svg xmlns="http://www.w3.org/2000/svg" class="flamegraph" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}">\n'
        f"<style>{_STYLE}</style>\n"
        f'<rect width="{WIDTH}" height="{height}" fill="#fbfaf8"/>\n'
        f'<text class="title" x="{MARGIN}" y="24">{escape(title)}</text>\n'
        f'<text class="note" x="{MARGIN}" y="44">{escape(note)}</text>\n'
        f"{_draw_legend(numbers)}\n"
        f'<text class="reset button hidden" x="{WIDTH - 260}" y="24">reset zoom</text>\n'
        f'<text class="search button hidden" x="{WIDTH - 160}" y="24">search</text>\n'
        f'<text class="share note" x="{WIDTH - 260}" y="44"></text>\n'
        f"{drawn}\n"
        f"<script><![CDATA[\n{script()}\n]]></script>\n</svg>\n"
    )


def draw_flamegraph(stacks: Iterable[Stack], title: str, stages: Sequence[str] = ()) -> Flamegraph:
    """Stacks as an element of an HTML page, which has the script, and controls if it likes.

    Args:
        stacks: What was sampled.
        title: For those who do not see it.
        stages: All stages, so that each keeps its colour.
    """
    stacks = tuple(stacks)
    seen = _seen(stacks)
    numbers = _numbers([*stages, *seen])
    drawn, height = _draw_all(stacks, 0, numbers)
    svg = (
        f'<svg class="flamegraph" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">\n'
        f"<style>{_STYLE}</style>\n{drawn}\n</svg>"
    )
    legend = *((stage, _COLOURS[numbers[stage]]) for stage in seen), ("several stages", SEVERAL)
    return Flamegraph(title, svg, legend)


def is_library(frame: Frame) -> bool:
    """Whether a function is of a package that the user did not write: Python's, a known one, or native code."""
    top = re.split(r"[/\\]", frame.file, maxsplit=1)[0].removesuffix(".py")
    native = frame.line is None and bool(frame.file)
    return native or top in _LIBRARIES or top in sys.stdlib_module_names or top.startswith("<")


def _seen(stacks: Iterable[Stack]) -> list[str]:
    return list(dict.fromkeys(stack.stage for stack in stacks if stack.stage is not None))


def _numbers(stages: Iterable[str]) -> dict[str, int]:
    """The colour of each stage: those that every job has keep theirs, the user's own take the others in turn."""
    stages = list(dict.fromkeys(stages))
    found = {stage: _NUMBERS[stage] for stage in stages if stage in _NUMBERS}
    free = [at for at in range(len(_COLOURS)) if at not in found.values()] or list(range(len(_COLOURS)))
    others = (stage for stage in stages if stage not in found)
    return found | {stage: free[at % len(free)] for at, stage in enumerate(others)}


def _draw_legend(numbers: Mapping[str, int]) -> str:
    drawn, x = [], float(MARGIN)
    for stage, number in numbers.items():
        name = _fit(stage, 120)
        drawn.append(f'<rect x="{x:.0f}" y="55" width="10" height="10" fill="{_COLOURS[number]}"/>')
        drawn.append(f'<text x="{x + 15:.0f}" y="64">{escape(name)}</text>')
        x += 35 + _CHARACTER * len(name)
    return "\n".join(drawn)


def script() -> str:
    """What makes flamegraphs zoom and search."""
    return _SCRIPT.read_text(encoding="utf-8")


def _draw_all(stacks: Iterable[Stack], top: int, numbers: Mapping[str, int]) -> tuple[str, int]:
    """Return the boxes as one element, and the height that they need below `top`."""
    root = Node(None)
    for stack in stacks:
        root.add(stack)
    boxes = list(_boxes(root))
    height = top + (max((box.depth for box in boxes), default=0) + 1) * ROW + 2 * MARGIN
    drawn = "\n".join(_draw(box, root.samples, height, numbers) for box in boxes)
    return f'<g class="boxes">\n{drawn}\n</g>', height


def _boxes(root: Node) -> Iterator[Box]:
    """Every node that is wide enough to be seen, the widest first, and so callers before callees."""
    if root.samples <= 0:
        return
    found, drawn = 1, 0
    waiting = [(-1.0, 0, Box(root, 0, 0.0, 1.0, -1))]
    while waiting and drawn < MOST_BOXES:
        box = heapq.heappop(waiting)[2]
        drawn += 1
        yield box
        left = box.left
        for callee in sorted(box.node.callees.values(), key=_label):
            width = callee.samples / root.samples
            if width * (WIDTH - 2 * MARGIN) >= _LEAST_WIDTH:
                heapq.heappush(waiting, (-width, found, Box(callee, box.depth + 1, left, width, drawn - 1)))
                found += 1
            left += width


def _label(node: Node) -> str:
    return "all" if node.frame is None else frame_label(node.frame)


def _draw(box: Box, total: float, height: int, numbers: Mapping[str, int]) -> str:
    inner = WIDTH - 2 * MARGIN
    x, width = MARGIN + box.left * inner, box.width * inner
    y = height - MARGIN - (box.depth + 1) * ROW
    label = _label(box.node)
    waiting = waiting_part(box.node.samples, box.node.computing)
    tip = f"{label}\n{100 * box.node.samples / total:.1f} % of the samples"
    if waiting is not None:
        tip += f", {100 * waiting:.0f} % of that waiting"
    return (
        f'<g class="{_classes(box.node, waiting, numbers)}" data-left="{box.left:.6f}" data-width="{box.width:.6f}" '
        f'data-depth="{box.depth}" data-caller="{box.caller}" data-label="{escape(label)}"><title>{escape(tip)}</title>'
        f'<rect x="{x:.2f}" y="{y}" width="{max(width - 0.5, 0.2):.2f}" height="{ROW - 1}" rx="1"/>'
        f'<text x="{x + 4:.2f}" y="{y + 13}">{escape(_fit(label, width - 6))}</text></g>'
    )


def _fit(label: str, width: float) -> str:
    room = int(width / _CHARACTER)
    if len(label) <= room:
        return label
    return label[: room - 1] + "…" if room >= 3 else ""


def _classes(node: Node, waiting: float | None, numbers: Mapping[str, int]) -> str:
    stage = node.stage
    classes = ["box", "several" if stage is None else f"stage-{numbers[stage]}"]
    if node.frame is not None:
        classes.append("library" if is_library(node.frame) else "own")
    return " ".join([*classes, "waits"] if waiting is not None and waiting > _MOSTLY else classes)


def escape(text: str) -> str:
    """Text for XML, of which not every character is allowed there."""
    return html.escape(_FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text), quote=True).replace("\n", "&#10;")
