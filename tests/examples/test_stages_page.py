"""The page about marked stages is true: its ladder, its warnings and its code are those of the package."""

import re
from pathlib import Path

import torch

from bottleneck.job import marks
from bottleneck.loader.modes import MOST_MARKS
from bottleneck.loader.record.marking import MarkPlan
from bottleneck.loader.record.plan import Plan
from bottleneck.measure.ladder import Capabilities, build_ladder

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "stages.md").read_text(encoding="utf-8")
SOURCES = {
    path: " ".join(path.read_text(encoding="utf-8").split())
    for package in ("measure", "loader")
    for path in (ROOT / "bottleneck" / package).rglob("*.py")
}


def rows_under(heading: str) -> list[list[str]]:
    """The cells of the last table under a heading, without its head."""
    section = PAGE.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_ladder_is_the_one_that_is_measured():
    planned = MarkPlan(sample=("@read", "@decode", "@augment_pixels"), collate=("@mix_up",))
    plan = Plan("marks", within_sample=(), marks=planned)
    ladder = build_ladder(Capabilities(copies=False, hands_over=True, plan=plan))
    measured = [(span.outer, span.name) for span in ladder.spans if span.name != "compute"]
    told = [(cells[0].strip("`"), re.match(r"`(\w+)`", cells[2]).group(1)) for cells in rows_under("The ladder")]
    assert told == measured


def test_every_warning_about_marks_has_its_row():
    known = {found for text in SOURCES.values() for found in re.findall(r'"(mark-[a-z-]+)"', text)}
    told = {cells[0].strip("`") for cells in rows_under("What is not used, and why")} - {""}
    assert told == known


def test_every_reason_is_one_that_the_code_gives():
    text = " ".join(SOURCES.values())
    rows = rows_under("What is not used, and why")
    last = next(number for number, cells in enumerate(rows) if cells[0] not in ("`mark-not-used`", ""))
    assert last >= 9
    for _, reason, _ in rows[:last]:
        written = reason.replace("\\_", "_").replace("NAME", "{name}").replace(str(MOST_MARKS), "{modes.MOST_MARKS}")
        assert written in text


def test_the_reserved_names_are_those_that_are_refused():
    refused = PAGE.split("a stage that is measured anyway (", 1)[1].split(")", 1)[0]
    assert tuple(re.findall(r"`(\w+)`", refused)) == marks.RESERVED


def test_the_code_of_the_page_runs(monkeypatch):
    monkeypatch.setattr(marks, "names", set())
    code = re.search(r"^```python\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL).group(1)
    names = {"torch": torch}
    exec(code, names)
    assert marks.names == {"augment_pixels", "decode"}
    assert issubclass(names["Photographs"], torch.utils.data.Dataset)


def test_the_output_is_that_of_the_example():
    source = (ROOT / "examples" / "marked_stages.py").read_text(encoding="utf-8")
    marked = re.findall(r'@bottleneck.stage\("(\w+)"\)', source)
    rows = {cells[1].strip("`"): cells[3] for cells in rows_under("An example")}
    for name in marked:
        assert re.fullmatch(r"[\d.]+ [mµ]s", rows[name])
