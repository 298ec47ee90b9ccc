"""Draws a recording of a terminal as a moving picture: an SVG that needs no program.

Each line of the screen is there from when it was printed until it was overwritten. A browser that is asked for less
motion shows the last screen.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html import escape

from docs.make.recording import COLUMNS, ROWS

FAST_S, HOLD_S, LAST_S = 0.5, 9.0, 16.0
"""The picture has a screen for each half second, takes so long at most, and shows the last one for nine seconds."""
_CELL, _LINE, _PADDING, _FONT_SIZE = 7.8, 18, 14, 13
_COLOURS = {
    **{30: "#6e7681", 31: "#ff7b72", 32: "#7ee787", 33: "#e3b341", 34: "#79c0ff", 35: "#d2a8ff", 36: "#56d4dd"},
    **{37: "#e6edf3", 90: "#8b949e", 91: "#ffa198", 92: "#aff5b4", 93: "#f2cc60", 94: "#a5d6ff", 95: "#e2c5ff"},
    **{96: "#b3f0ff", 97: "#ffffff"},
}
_STEPS = (0, 95, 135, 175, 215, 255)
_CODE = re.compile(r"\x1b\[([?\d;]*)([A-Za-z])")
INK, PAPER = "#e6edf3", "#0d1117"


@dataclass(frozen=True)
class Style:
    """Style of a character."""

    colour: str = INK
    bold: bool = False
    dim: bool = False


Cell = tuple[str, Style]
Row = tuple[Cell, ...]


@dataclass
class Screen:
    """As much of a terminal as a progress line and a report need."""

    rows: list[list[Cell]] = field(default_factory=lambda: [[]])
    row: int = 0
    column: int = 0
    style: Style = Style()

    def feed(self, text: str) -> None:
        """Print a piece of output."""
        at = 0
        while at < len(text):
            code = _CODE.match(text, at)
            if code is not None:
                self._obey(code[2], [int(number) for number in code[1].strip("?").split(";") if number])
                at = code.end()
                continue
            self._put(text[at])
            at += 1

    def _put(self, character: str) -> None:
        if character == "\n":
            self.row += 1
        elif character == "\r":
            self.column = 0
        elif character >= " ":
            if self.column == COLUMNS:
                self.row, self.column = self.row + 1, 0
            line = self._line()
            line += [(" ", Style())] * (self.column + 1 - len(line))
            line[self.column] = (character, self.style)
            self.column += 1

    def _line(self) -> list[Cell]:
        while len(self.rows) <= self.row:
            self.rows.append([])
        return self.rows[self.row]

    def _obey(self, name: str, numbers: list[int]) -> None:
        count = numbers[0] if numbers else 1
        if name == "m":
            self.style = _styled(self.style, numbers or [0])
        elif name == "A":
            self.row = max(0, self.row - count)
        elif name == "K":
            line = self._line()
            del line[0 if numbers == [2] else self.column :]

    def shown(self) -> list[Row]:
        """Return the lines, without blanks at their ends."""
        lines = [list(line) for line in self.rows]
        for line in lines:
            while line and line[-1][0] == " ":
                line.pop()
        return [tuple(line) for line in lines]


def _styled(style: Style, numbers: list[int]) -> Style:
    if 38 in numbers:
        rest = numbers[numbers.index(38) + 1 :]
        colour = "#{:02x}{:02x}{:02x}".format(*rest[1:4]) if rest[0] == 2 else _of_256(rest[1])
        return Style(colour, style.bold, style.dim)
    for number in numbers:
        if number == 0:
            style = Style()
        elif number in (1, 2, 22):
            style = Style(style.colour, number == 1, number == 2)
        elif number == 39 or number in _COLOURS:
            style = Style(_COLOURS.get(number, INK), style.bold, style.dim)
    return style


def _of_256(number: int) -> str:
    if number < 16:
        return _COLOURS[(30 if number < 8 else 82) + number]
    if number > 231:
        return "#{0:02x}{0:02x}{0:02x}".format(8 + 10 * (number - 232))
    number -= 16
    return "#{:02x}{:02x}{:02x}".format(*(_STEPS[number // place % 6] for place in (36, 6, 1)))


def screens(pieces: list[tuple[float, str]], command: str) -> list[list[Row]]:
    """The screen at every half second, the command that was typed at its top; the last one is the end."""
    screen, found, next_s = Screen(), [], FAST_S
    screen.feed(f"\x1b[90m$\x1b[0m \x1b[1m{command}\x1b[0m\r\n")
    for seconds, text in pieces:
        while seconds >= next_s:
            found.append(screen.shown())
            next_s += FAST_S
        screen.feed(text)
    return [*found, screen.shown()]


def draw(pieces: list[tuple[float, str]], command: str, title: str) -> str:
    """The moving picture, as SVG.

    Args:
        pieces: What was printed, with seconds since the start.
        command: What was typed.
        title: For those who do not see it.
    """
    shown = screens(pieces, command)
    took_s = min(LAST_S, len(shown) * FAST_S)
    total_s, height = took_s + HOLD_S, min(ROWS, max(map(len, shown)))
    starts = [took_s * number / len(shown) for number in range(len(shown))] + [total_s]
    drawn, rules = [], []
    for at in range(height):
        lines = [screen[at] if at < len(screen) else () for screen in shown]
        for first, last in _runs(lines):
            if not lines[first]:
                continue
            name = f"t{len(rules)}"
            rules.append(_rule(name, starts[first] / total_s, starts[last] / total_s))
            ends = " class='end'" if last == len(shown) else ""
            drawn.append(f"<g{ends} style='animation-name:{name}'>{_text(lines[first], at)}</g>")
    wide, high = COLUMNS * _CELL + 2 * _PADDING, height * _LINE + 2 * _PADDING
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:.0f} {high:.0f}" width="{wide:.0f}" role="img" '
        f'aria-label="{escape(title)}">\n<style>\ntext{{font:{_FONT_SIZE}px ui-monospace,Menlo,Consolas,'
        "'DejaVu Sans Mono',monospace;white-space:pre}\n"
        f"g{{visibility:hidden;animation:{total_s:.1f}s step-end infinite}}\n.end{{visibility:visible}}\n"
        "@media(prefers-reduced-motion:reduce){g{animation:none}}\n" + "\n".join(rules) + "\n</style>\n"
        f'<rect width="100%" height="100%" rx="8" fill="{PAPER}"/>\n' + "\n".join(drawn) + "\n</svg>\n"
    )


def _runs(lines: list[Row]) -> list[tuple[int, int]]:
    """Return the first of some equal lines, and the first that differs, for each run of them."""
    starts = [at for at in range(len(lines)) if at == 0 or lines[at] != lines[at - 1]]
    return list(zip(starts, [*starts[1:], len(lines)], strict=True))


def _rule(name: str, begins: float, ends: float) -> str:
    frames = [f"{100 * begins:.2f}%{{visibility:visible}}"]
    if begins > 0:
        frames.insert(0, "0%{visibility:hidden}")
    if ends < 1:
        frames.append(f"{100 * ends:.2f}%,100%{{visibility:hidden}}")
    return f"@keyframes {name}{{{''.join(frames)}}}"


def _text(line: Row, at: int) -> str:
    y = _PADDING + _LINE * (at + 0.75)
    parts, start = [], 0
    while start < len(line):
        style, stop = line[start][1], start
        while stop < len(line) and line[stop][1] == style:
            stop += 1
        text = "".join(character for character, _ in line[start:stop])
        if text.strip():
            weight = (' font-weight="700"' if style.bold else "") + (' opacity="0.65"' if style.dim else "")
            x, length = _PADDING + start * _CELL, len(text) * _CELL
            parts.append(
                f'<text x="{x:.1f}" y="{y:.1f}" textLength="{length:.1f}" fill="{style.colour}"{weight}>'
                f"{escape(text)}</text>"
            )
        start = stop
    return "".join(parts)
