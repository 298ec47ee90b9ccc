"""Draws the pictures of the documentation from the result of the tutorial: `make pictures`.

The plot of the blocks is that of the HTML report, for a light and a dark page. The terminal has its own background.
Where Chromium is installed, the page itself is photographed too, as a screen and a phone show it.
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

from bottleneck.reports.html import BlockPlot, plot_blocks
from bottleneck.reports.render import for_terminal, render
from bottleneck.results.json import load
from bottleneck.results.records import Result
from docs.make import moving, recording
from tests.support.browser import find_chromium, open_browser

FOLDER = Path(__file__).resolve().parents[1] / "pictures"
BASE = "base.json"
RECORDING, MOVING, COMMAND = FOLDER / "demo.jsonl", FOLDER / "demo.svg", "bottleneck demo"
"""The recording of a real run by `python -m docs.make.recording`, and its moving picture."""
LIGHT = {"ink": "#1c2024", "soft": "#60646c", "axis": "#80838d", "bar": "#3e7bb6", "hot": "#c2410c"}
DARK = {"ink": "#edeef0", "soft": "#b0b4ba", "axis": "#777b84", "bar": "#5b9bd5", "hot": "#fb923c"}
LIGHT["paper"], DARK["paper"] = "#ffffff", "#0d1117"
_TOP, _MARGIN, _RIGHT, _FONT = 34, 10, 40, "13px system-ui, -apple-system, 'Segoe UI', sans-serif"
_SIZES = {1280: 1300, 390: 1600}
"""Height of the photograph of the page, by its width."""
_COLUMNS, _CELL, _LINE, _PADDING = 80, 12.2, 24.4, 16
"""Height of a line in rich's SVG, whose characters are 20 units high."""
_TERMINAL = (
    "<style>.{unique_id}-matrix{{font-family:ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;"
    "font-size:{char_height}px;line-height:{line_height}px}}{styles}</style>\n<defs>{lines}</defs>\n"
    '<g class="{unique_id}-matrix">{matrix}</g>'
)


def main() -> None:
    """Write every picture."""
    result = load(FOLDER / BASE)
    MOVING.write_text(draw_moving(), encoding="utf-8")
    for name, svg in draw(result).items():
        (FOLDER / name).write_text(svg, encoding="utf-8")
    for name, png in photograph(result):
        (FOLDER / name).write_bytes(png)


def draw_moving() -> str:
    """The moving picture of the recorded demo."""
    return moving.draw(recording.read(RECORDING), COMMAND, "A diagnosis in a terminal, from the command to the verdict")


def photograph(result: Result) -> Iterator[tuple[str, bytes]]:
    """The top of the page, wide and narrow, light and dark, by file name; nothing without a browser."""
    program = find_chromium()
    if program is None:
        print("No Chromium is installed: the photographs of the page are unchanged.", file=sys.stderr)
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
    plot = plot_blocks(result)
    assert plot is not None  # the tutorial has many
    drawn = {f"blocks-{name}.svg": draw_blocks(plot, colours) for name, colours in (("light", LIGHT), ("dark", DARK))}
    return {"terminal.svg": draw_terminal(result), **drawn}


def draw_blocks(plot: BlockPlot, colours: dict[str, str]) -> str:
    """Return the plot as a separate file, with its title, on an opaque background."""
    shapes = [
        f'<line x1="{plot.left}" x2="{plot.width - 8}" y1="{y}" y2="{y}" stroke="{colours["axis"]}"/>\n'
        f'<text x="{plot.left - 8}" y="{y}" text-anchor="end" dominant-baseline="central">{escape(name)}</text>'
        for name, y in plot.lanes
    ]
    shapes += [
        f'<circle cx="{d.x:.1f}" cy="{d.y:.1f}" r="3" fill="{colours["hot" if d.outlier else "bar"]}"/>'
        for d in plot.dots
    ]
    notes = textwrap.wrap(plot.note, 112)
    shapes += [
        f'<text x="0" y="{plot.height + 12 + 15 * number}" style="font-size:11px" fill="{colours["soft"]}">'
        f"{escape(note)}</text>"
        for number, note in enumerate(notes)
    ]
    width, height = plot.width + _RIGHT + 2 * _MARGIN, plot.height + _TOP + 15 * len(notes) + _MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'role="img" aria-label="{escape(f"{plot.title}. {plot.note}")}">\n'
        f'<rect width="100%" height="100%" rx="6" fill="{colours["paper"]}"/>\n'
        f'<g style="font:{_FONT}" fill="{colours["ink"]}">\n'
        f'<text x="{_MARGIN}" y="20" style="font-weight:600">{escape(plot.title)}</text>\n'
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
