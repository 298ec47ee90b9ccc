"""The first screen of the README is what the bench found and what the package promises."""

import xml.etree.ElementTree as ET

import pytest

from docs.make.first_screen import BADGES, README, RESULTS, ROOT, ROWS, accuracy, badges, bars, with_accuracy

AGAIN = "write it again with `python -m docs.make.first_screen`"
MEASURED = RESULTS.read_text(encoding="utf-8")
SMALL = """# Results

## Bars

| what | bar | measured | |
|------|-----|----------|-|
{rows}

Off in 'x':

| not | a | bar | held |
"""


def results(*judged):
    rows = [
        f"| {name} | all | {at} of 9; 2 more | {held} |"
        for at, (name, held) in enumerate(zip(ROWS, judged, strict=True))
    ]
    return SMALL.format(rows="\n".join(rows))


def test_the_table_and_the_badges_are_those_of_the_kept_results():
    text = README.read_text(encoding="utf-8")
    assert with_accuracy(text, MEASURED) == text, AGAIN
    assert badges(MEASURED, (ROOT / "pyproject.toml").read_text(encoding="utf-8")) == BADGES.read_text("utf-8"), AGAIN
    assert text.index("<!--accuracy-->") < text.index("pip install") < text.index("\n## ")


def test_what_is_missed_is_counted():
    shown = accuracy(results("held", "**missed**", "held", "held", "held"))
    assert "4 of 5 targets are met" in shown
    assert shown.count("\n| ") == 5
    assert "| 1 of 9 |" in shown


def test_a_bar_that_is_gone_is_an_error():
    with pytest.raises(KeyError, match="cause of a slow job"):
        accuracy(results(*["held"] * 5).replace("cause of a slow job", "another"))


def test_every_badge_says_what_it_is_about():
    pythons = [f'"Programming Language :: Python :: 3.{minor}",' for minor in (10, 12)]
    project = "\n".join(['license = "MIT"', '"torch>=2.4",', *pythons])
    drawn = ET.fromstring(badges(results(*["held"] * 5), project))
    assert drawn.get("aria-label") == "python 3.10 – 3.12, torch 2.4 or newer, licence MIT, accuracy 5 of 5 targets met"


def test_the_bars_are_read_without_what_follows():
    assert list(bars(results(*["held"] * 5))) == list(ROWS)
