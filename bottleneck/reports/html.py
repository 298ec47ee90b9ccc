"""A document as one HTML page that needs nothing else: no font, no address, and no script but its own."""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from bottleneck.reports import sanitize
from bottleneck.reports.document import Bar, Document, Figure, Paragraph, Section
from bottleneck.results.format import known, percent
from bottleneck.results.records import Block, Result
from bottleneck.results.values import LARGEST

if TYPE_CHECKING:
    import jinja2
    from markupsafe import Markup

_PAGE_SCRIPT = Path(__file__).parent / "templates" / "page.js"


def render_html(document: Document) -> str:
    """Return the report as one self-contained page, light or dark like the reader's system, with a final newline."""
    sections = [replace(section, blocks=blocks) for section, blocks in document.shown("html")]
    # Above the contents everything is open.
    opened = list(takewhile(lambda section: not (section.folded and section.title), sections))
    script = _PAGE_SCRIPT.read_text(encoding="utf-8")
    # The page's policy lets it run by its hash.
    script_hash = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    page = _environment().get_template("page.html.j2")
    rendered = page.render(
        title=document.title,
        opened=opened,
        others=sections[len(opened) :],
        script=script,
        script_hash=script_hash,
        contents=[section.title for section in sections if section.title],
    )
    return rendered.strip() + "\n"


@functools.cache
def _environment() -> jinja2.Environment:
    """Return the environment that renders the pages; it keeps its compiled templates."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("bottleneck.reports"),
        autoescape=True,
        # Whatever a template shows, before it is escaped.
        finalize=lambda value: sanitize.shown(value) if type(value) is str else value,
        undefined=jinja2.StrictUndefined,  # an undefined name is an error
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["anchor"] = lambda title: re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
    environment.filters["prose"] = _prose
    environment.filters["code"] = _code
    environment.filters["diff"] = _diff
    environment.filters["percents"] = _percents
    environment.filters["kind"] = lambda block: type(block).__name__
    return environment


def _percents(cell: str | Bar) -> float | None:
    """Return the length of a bar in percent; None if unknown."""
    fraction = cell.fraction if isinstance(cell, Bar) else None
    return round(100 * min(1.0, max(0.0, fraction)), 1) if known(fraction) else None


def _prose(text: str) -> Markup:
    """Return a sentence with our commands between backticks as code; the user's text is unchanged."""
    from markupsafe import Markup, escape

    return Markup(re.sub(r"`(bottleneck [^`]+)`", r"<code>\1</code>", str(escape(sanitize.shown(text)))))


def _code(text: str) -> Markup:
    """Return lines of code, with their line breaks."""
    from markupsafe import escape

    return escape(sanitize.public("\n".join(sanitize.lines(text))))


def _diff(text: str) -> Markup:
    """Return lines of a diff, with removed and added ones marked."""
    from markupsafe import Markup

    tags = {"+": Markup("<ins>{}\n</ins>"), "-": Markup("<del>{}\n</del>")}
    lines = sanitize.public("\n".join(sanitize.lines(text))).split("\n")
    return Markup("").join(tags.get(line[:1], Markup("{}\n")).format(line) for line in lines)


# --- the plot of the blocks ---------------------------------------------------------------------------------


def blocks(result: Result) -> Iterator[Section]:
    """Yield every block, in a plot."""
    plot = plot_blocks(result)
    if plot is not None:
        yield Section(plot.title, (Figure(plot), Paragraph(plot.note, "note")))


_WIDTH, _LABEL_WIDTH = 720, 190
"""The room for names is for letters of half again the size: on a narrow screen the plot shrinks and they do not."""
MAX_LANES = 40
MAX_DOTS = 4_000
"""Blocks that are drawn; a page of more takes browsers long."""
_LANE = 34
_WIDEST_DEVIATION, _MIN_DEVIATION = 0.5, 0.02


@dataclass(frozen=True)
class Dot:
    """A single measured block."""

    x: float
    y: float
    outlier: bool
    """It lies further out than its lane reaches."""
    tip: str


@dataclass(frozen=True)
class BlockPlot:
    """A lane for each experiment, and a dot for each of its blocks."""

    title: str
    note: str
    lanes: tuple[tuple[str, float], ...]
    """Names, and the middle of their lanes."""
    dots: tuple[Dot, ...]
    height: float
    width: float = _WIDTH
    left: float = _LABEL_WIDTH


def plot_blocks(result: Result) -> BlockPlot | None:
    """Return the plot; None if no experiment has two blocks."""
    found = [(e.name, e.coupled) for e in result.experiments if e.coupled and len(e.coupled.blocks) > 1][:MAX_LANES]
    if not found:
        return None
    rounds = max(block.round for _, rate in found for block in rate.blocks)
    deviations = [_deviations(rate.blocks)[: MAX_DOTS // len(found)] for _, rate in found]
    largest = max((abs(value) for lane in deviations for _, value in lane), default=0.0)
    span = min(_WIDEST_DEVIATION, max(_MIN_DEVIATION, largest))
    lanes = [(name, at * _LANE + _LANE / 2) for at, (name, _) in enumerate(found)]
    dots = []
    for (name, middle), lane in zip(lanes, deviations, strict=True):
        for block, deviation in lane:
            x = _LABEL_WIDTH + 8 + (_WIDTH - _LABEL_WIDTH - 24) * (block.round / rounds if rounds else 0.5)
            y = middle - min(span, max(-span, deviation)) / span * (_LANE / 2 - 4)
            tip = f"{name}, round {block.round}: {percent(deviation)} from the mean"
            dots.append(Dot(x, y, abs(deviation) > _WIDEST_DEVIATION, tip))
    return BlockPlot(
        "Blocks, round by round",
        f"Time per sample against the mean of the experiment; each lane reaches ±{percent(span)}. "
        "A slope is drift, a single dot an outlier; an orange dot lies beyond its lane.",
        tuple((sanitize.shown(name, 18), middle) for name, middle in lanes),
        tuple(dots),
        len(found) * _LANE,
    )


def _deviations(blocks: Sequence[Block]) -> list[tuple[Block, float]]:
    usable = [block for block in blocks if block.samples > 0 and 0 < block.seconds < LARGEST]
    samples, seconds = sum(block.samples for block in usable), sum(block.seconds for block in usable)
    if not usable or not 0 < samples / seconds < LARGEST:
        return []
    return [(block, block.seconds / block.samples * samples / seconds - 1) for block in usable]
