"""The answer on a card: the top of a page, and a picture for a chat or a slide."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from bottleneck.reports import sanitize
from bottleneck.reports.charts.flamegraph import escape
from bottleneck.reports.charts.shapes import short
from bottleneck.results.records import State

WIDTH, HEIGHT = 1200, 630
"""What chats and slides show whole."""
_LEFT, _RIGHT = 64, WIDTH - 56
Standing = State | Literal["sync_bound", "tuned", "as_before", "ended_early", "faster", "slower", "as_fast"]
"""How a job stands, what became of its tuning, or what a change to it brought."""
_COLOURS: dict[Standing, str] = {
    "input_bound": "#c2410c",
    "sync_bound": "#c2410c",
    "device_bound": "#18794e",
    "tuned": "#18794e",
}
_LABELS: dict[Standing, str] = {
    "input_bound": "Input-bound",
    "device_bound": "Compute-bound",
    "sync_bound": "Sync-bound",
    "undecided": "Undecided",
    "tuned": "Tuned",
    "as_before": "Nothing pays",
    "ended_early": "Ended early",
    "faster": "Faster",
    "slower": "Slower",
    "as_fast": "As fast as before",
}
_INK, _SOFT, _BAR = "#1c2024", "#60646c", "#3e7bb6"
_WIDTH_OF_CHARACTER = 0.56
"""Of a letter, as a part of its size: wide, since nobody knows the reader's font."""
_MOST_BARS = 5
_BAR_BEGIN, _BAR_ROOM, _PITCH = 260, 640, 40


@dataclass(frozen=True)
class Node:
    """One stage of the pipeline."""

    name: str
    does: str
    """For those who do not know the name; empty for stages of the user's own."""
    takes: str
    """By itself, for a batch."""
    adds: str
    """What of that shows in the step; empty where it is unknown."""
    share: float
    """What it takes, of the longest."""
    hot: bool
    """The bottleneck."""


@dataclass(frozen=True)
class Lane:
    """Stages that one side of the job works on, in the order in which data passes them."""

    title: str
    nodes: tuple[Node, ...]


@dataclass(frozen=True)
class Card:
    """The answer in short."""

    state: Standing
    headline: str
    claim: str
    facts: tuple[tuple[str, str], ...]
    """What is said, and of what."""
    lanes: tuple[Lane, ...] = ()

    @property
    def label(self) -> str:
        """The state in words, since not everybody sees colours."""
        return _LABELS[self.state]


def render_card(card: Card) -> str:
    """The card as an SVG that needs nothing else; it ends with one newline."""
    words = f"{card.label}. {card.headline} {card.claim}"
    shapes = "\n".join((*_answer(card), *_bars(card), *_foot(card)))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'role="img" aria-label="{escape(sanitize.shown(words))}">\n'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>\n'
        f'<rect width="16" height="{HEIGHT}" fill="{_colour(card)}"/>\n'
        f"<g font-family=\"system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif\" fill=\"{_INK}\">\n"
        f"{shapes}\n</g>\n</svg>\n"
    )


def _colour(card: Card) -> str:
    return _COLOURS.get(card.state, _SOFT)


def _answer(card: Card) -> Iterator[str]:
    yield _text(_LEFT, 82, card.label.upper(), 26, _colour(card), bold=True)
    yield _text(_RIGHT, 82, "bottleneck", 24, _SOFT, anchor="end")
    foot = 156
    for line in _wrapped(card.headline, 54, 2):
        yield _text(_LEFT, foot, line, 54, _INK, bold=True)
        foot += 62
    for line in _wrapped(card.claim, 28, 2):
        yield _text(_LEFT, foot - 6, line, 28, _SOFT)
        foot += 36


def _bars(card: Card) -> Iterator[str]:
    """What the longest stages take, in the order in which data passes them."""
    nodes = [node for lane in card.lanes for node in lane.nodes]
    longest = sorted(nodes, key=lambda node: (-node.hot, -node.share))[:_MOST_BARS]
    shown = [node for node in nodes if node in longest]
    top = HEIGHT - 132 - _PITCH * len(shown)
    if shown:
        yield _text(_BAR_BEGIN, top - 14, "time for a batch, by itself", 18, _SOFT)
    for number, node in enumerate(shown):
        y, length = top + _PITCH * number, max(2.0, _BAR_ROOM * node.share)
        yield _text(_BAR_BEGIN - 16, y + 21, short(node.name), 22, _INK, bold=node.hot, anchor="end")
        fill = _colour(card) if node.hot and card.state == "input_bound" else _BAR
        yield f'<rect x="{_BAR_BEGIN}" y="{y}" width="{length:.1f}" height="28" fill="{fill}"/>'
        yield _text(_BAR_BEGIN + length + 14, y + 21, node.takes, 22, _INK, bold=node.hot)


def _foot(card: Card) -> Iterator[str]:
    yield f'<line x1="{_LEFT}" x2="{_RIGHT}" y1="{HEIGHT - 104}" y2="{HEIGHT - 104}" stroke="#8b8d98"/>'
    facts = [text for name, text in card.facts if name in ("Job", "Machine", "Measured")]
    for number, line in enumerate([*facts[:1], " · ".join(facts[1:])]):
        yield from (_text(_LEFT, HEIGHT - 66 + 32 * number, cut, 20, _SOFT) for cut in _wrapped(line, 20, 1))


def _wrapped(text: str, size: float, most: int) -> list[str]:
    """The lines of a text, of which the last one is cut where there are too many."""
    room = int((_RIGHT - _LEFT) / (_WIDTH_OF_CHARACTER * size))
    return textwrap.wrap(sanitize.shown(text), room, max_lines=most, placeholder="…")


def _text(x: float, y: float, text: str, size: int, fill: str, *, bold: bool = False, anchor: str = "start") -> str:
    weight = ' font-weight="700"' if bold else ""
    end = ' text-anchor="end"' if anchor == "end" else ""
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{fill}"{weight}{end}>{escape(text)}</text>'
