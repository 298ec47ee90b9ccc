"""Draws the pictures of the documentation from the results of the tutorial and of the tuning: `make pictures`.

The charts are those of the HTML report, each for a light and a dark page. The terminal has its own background. Where
Chromium is installed, the page itself is photographed too, as a screen and a phone show it.
"""

from __future__ import annotations

import io
import re
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from html import escape
from pathlib import Path

from PIL import Image
from rich.console import Console
from rich.segment import Segment, Segments
from rich.terminal_theme import MONOKAI

from bottleneck.reports.charts.charts import block_chart, draw_charts, tuning_chart
from bottleneck.reports.charts.shapes import Chart
from bottleneck.reports.render import CARD, for_terminal, render
from bottleneck.results.codec import load
from bottleneck.results.records import Result
from bottleneck.results.tuning import TuningResult
from docs.make import tuning
from tests.support.browser import find_chromium, open_browser

FOLDER = Path(__file__).resolve().parents[1] / "pictures"
BASE = "base.json"
NAMES = {
    "Throughput with the data cached at each point": "ladder",
    "One step of the job": "waterfall",
    "Gain if free": "gain",
    "Blocks, round by round": "blocks",
}
"""File name of each chart, by its title."""
LIGHT = {"ink": "#1c2024", "soft": "#60646c", "axis": "#80838d", "bar": "#3e7bb6", "pale": "#6b96c0", "hot": "#c2410c"}
DARK = {"ink": "#edeef0", "soft": "#b0b4ba", "axis": "#777b84", "bar": "#5b9bd5", "pale": "#5d7f9f", "hot": "#fb923c"}
LIGHT["paper"], DARK["paper"] = "#ffffff", "#0d1117"
_TOP, _MARGIN, _RIGHT, _FONT = 34, 10, 40, "13px system-ui, -apple-system, 'Segoe UI', sans-serif"
_SIZES = {1280: 1300, 390: 1600}
"""How much of the page is photographed, by its width."""
_COLUMNS, _CELL, _LINE, _PADDING = 80, 12.2, 24.4, 16
"""Of rich's SVG, whose characters are 20 units high."""
_TERMINAL = (
    "<style>.{unique_id}-matrix{{font-family:ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;"
    "font-size:{char_height}px;line-height:{line_height}px}}{styles}</style>\n<defs>{lines}</defs>\n"
    '<g class="{unique_id}-matrix">{matrix}</g>'
)


def main() -> None:
    """Write every picture."""
    result = load(FOLDER / BASE)
    for name, svg in {**draw(result), **draw_tuning(tuning.read(FOLDER))}.items():
        (FOLDER / name).write_text(svg, encoding="utf-8")
    for name, png in photograph(result):
        (FOLDER / name).write_bytes(png)


def photograph(result: Result) -> Iterator[tuple[str, bytes]]:
    """The top of the page, wide and narrow, light and dark, by file name; nothing without a browser."""
    program = find_chromium()
    if program is None:
        print("No Chromium is installed: the photographs of the page stay as they are.", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory() as folder, open_browser(program) as page:
        path = Path(folder, "report.html")
        path.write_text(render(result, "html"), encoding="utf-8")
        for dark in (False, True):
            page.emulate(dark=dark)
            for width, height in _SIZES.items():
                page.open(path, width=width)
                yield f"report-{width}-{'dark' if dark else 'light'}.png", _small(page.picture(height))


def _small(png: bytes) -> bytes:
    """A photograph of a page, which needs few colours."""
    smaller = io.BytesIO()
    Image.open(io.BytesIO(png)).convert("RGB").quantize(64).save(smaller, "PNG", optimize=True)
    return smaller.getvalue()


def draw(result: Result) -> dict[str, str]:
    """The pictures of a result, by file name."""
    pictures = {"terminal.svg": draw_terminal(result), "card.svg": render(result, CARD)}
    blocks = block_chart(result)
    for chart in (*draw_charts(result), *((blocks,) if blocks is not None else ())):
        if chart.title in NAMES:
            pictures[f"{NAMES[chart.title]}-light.svg"] = draw_chart(chart, LIGHT)
            pictures[f"{NAMES[chart.title]}-dark.svg"] = draw_chart(chart, DARK)
    return pictures


def draw_tuning(tuned: TuningResult) -> dict[str, str]:
    """The ladder of a tuning, by file name."""
    chart = tuning_chart(tuned)
    assert chart is not None  # a page without a step up is refused
    return {f"tuning-{name}.svg": draw_chart(chart, colours) for name, colours in (("light", LIGHT), ("dark", DARK))}


def draw_chart(chart: Chart, colours: dict[str, str]) -> str:
    """A chart as a file of its own, with its title, on an opaque background."""
    soft = f' style="font-size:11px" fill="{colours["soft"]}"'
    fills = {"bar": colours["bar"], "hot": colours["hot"], "soft": colours["pale"]}
    shapes = [
        f'<line x1="{s.x1:.1f}" x2="{s.x2:.1f}" y1="{s.y1:.1f}" y2="{s.y2:.1f}" stroke="{colours["axis"]}"/>'
        if s.kind == "axis"
        else f'<line x1="{s.x1:.1f}" x2="{s.x2:.1f}" y1="{s.y1:.1f}" y2="{s.y2:.1f}" stroke="{colours["soft"]}" '
        'stroke-dasharray="4 3"/>'
        for s in chart.segments
        if s.kind in ("axis", "bound")
    ]
    shapes += [
        f'<rect x="{r.x:.1f}" y="{r.y:.1f}" width="{r.width:.1f}" height="{r.height:.1f}" '
        f'fill="{fills.get(r.kind, colours["bar"])}"/>'
        for r in chart.rects
    ]
    strokes = {"interval": (("paper", 5.0), ("ink", 1.5)), "break": (("paper", 3.0),)}
    shapes += [
        f'<line x1="{s.x1:.1f}" x2="{s.x2:.1f}" y1="{s.y1:.1f}" y2="{s.y2:.1f}" stroke="{colours[colour]}" '
        f'stroke-width="{wide}"/>'
        for s in chart.segments
        for colour, wide in strokes.get(s.kind, ())
    ]
    shapes += [
        f'<circle cx="{d.x:.1f}" cy="{d.y:.1f}" r="3" fill="{fills.get(d.kind, colours["bar"])}"/>' for d in chart.dots
    ]
    shapes += [
        f'<text x="{lab.x:.1f}" y="{lab.y:.1f}" text-anchor="{lab.anchor}" '
        f'dominant-baseline="{"central" if lab.kind in ("label", "value") else "auto"}"'
        f"{soft if lab.kind == 'soft' else ''}>{escape(lab.text)}</text>"
        for lab in chart.labels
    ]
    notes = textwrap.wrap(chart.note, 112)
    shapes += [
        f'<text x="0" y="{chart.height + 12 + 15 * number}" style="font-size:11px" fill="{colours["soft"]}">'
        f"{escape(note)}</text>"
        for number, note in enumerate(notes)
    ]
    width, height = chart.width + _RIGHT + 2 * _MARGIN, chart.height + _TOP + 15 * len(notes) + _MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'role="img" aria-label="{escape(chart.words)}">\n'
        f'<rect width="100%" height="100%" rx="6" fill="{colours["paper"]}"/>\n'
        f'<g style="font:{_FONT}" fill="{colours["ink"]}">\n'
        f'<text x="{_MARGIN}" y="20" style="font-weight:600">{escape(chart.title)}</text>\n'
        f'<g transform="translate({_MARGIN} {_TOP})">\n' + "\n".join(shapes) + "\n</g>\n</g>\n</svg>\n"
    )


def draw_terminal(result: Result) -> str:
    """The short report as a terminal shows it."""
    console = Console(width=_COLUMNS, record=True, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    shown = console.render_lines(for_terminal(result), pad=False)
    for line in shown:
        console.print(Segments([*line, Segment.line()]), end="")
    drawn = console.export_svg(title="", theme=MONOKAI, code_format=_TERMINAL, unique_id="report")
    drawn = re.sub(r"<text[^>]*>\s*</text>", "", drawn)
    width, height = _COLUMNS * _CELL + 2 * _PADDING, len(shown) * _LINE + 2 * _PADDING
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'role="img" aria-label="The report in a terminal">\n<rect width="100%" height="100%" rx="8" fill="#0d1117"/>\n'
        f'<g transform="translate({_PADDING} {_PADDING})">\n{drawn}\n</g>\n</svg>\n'
    )


if __name__ == "__main__":
    main()
