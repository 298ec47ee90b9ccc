"""A recording of a terminal as a moving picture."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from docs.make import moving, recording
from docs.make.pictures import COMMAND, MOVING, RECORDING, draw_moving

ROOT = Path(__file__).resolve().parents[2]


def lines(pieces):
    """The last screen as text, without the command."""
    return ["".join(character for character, _ in row) for row in moving.screens(pieces, "x")[-1]][1:]


@pytest.mark.parametrize(
    ("printed", "seen"),
    [
        ("one\r\ntwo", ["one", "two"]),
        ("50 %\r\x1b[2K100 %", ["100 %"]),
        ("a long line\rshort\x1b[K", ["short"]),
        ("a\r\nb\r\nc\x1b[2A\r\x1b[2KA", ["A", "b", "c"]),
        ("\x1b[?25l\x1b[1;31mred\x1b[0m", ["red"]),
        ("x" * 82, ["x" * 80, "xx"]),
    ],
)
def test_the_screen_is_what_a_terminal_shows(printed, seen):
    assert lines([(0.0, printed)]) == seen


def test_colours_are_those_of_the_terminal():
    row = moving.screens([(0.0, "\x1b[1;32mg\x1b[0m\x1b[38;5;196mr\x1b[38;2;1;2;3mt")], "x")[-1][1]
    assert [(style.colour, style.bold) for _, style in row] == [
        ("#7ee787", True),
        ("#ff0000", False),
        ("#010203", False),
    ]


def test_a_line_is_there_from_when_it_came_until_it_went():
    drawn = moving.draw([(0.1, "first"), (0.6, "\r\x1b[2Klast")], "x", "Title")
    root = ET.fromstring(drawn)
    groups = root.findall("{http://www.w3.org/2000/svg}g")
    assert ["".join(group.itertext()) for group in groups] == ["$x", "first", "last"]
    assert [group.get("class") for group in groups] == ["end", None, "end"]
    assert root.get("aria-label") == "Title"
    assert "prefers-reduced-motion" in drawn


def test_a_command_is_recorded_as_a_terminal_gets_it(tmp_path):
    pieces = recording.record(["sh", "-c", "test -t 1 && printf 'tty \\342\\226\\210\\n' && stty size"])
    assert "".join(text for _, text in pieces).splitlines() == ["tty █", "40 80"]
    recording.write(tmp_path / "kept.jsonl", pieces)
    assert recording.read(tmp_path / "kept.jsonl") == pieces


def test_a_command_that_fails_is_no_recording():
    with pytest.raises(RuntimeError, match="ended with 3"):
        recording.record(["sh", "-c", "exit 3"])


def test_the_picture_of_the_readme_is_that_of_the_kept_run():
    assert MOVING.read_text(encoding="utf-8") == draw_moving(), "write it again with `make pictures`"
    assert len(MOVING.read_bytes()) < 200_000
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert readme.index(f"docs/pictures/{MOVING.name}") < readme.index("\n## ")
    said = "\n".join(lines(recording.read(RECORDING)))
    assert COMMAND == "bottleneck demo"
    assert re.search(r"Bottleneck: \w+", said)
