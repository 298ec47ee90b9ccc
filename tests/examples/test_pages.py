"""Pages of the documentation are true: what they name, and their code, is that of the package."""

import importlib
import re
import sys
import textwrap
from pathlib import Path

import pytest
import torch

from bottleneck.analysis.advice import case as rule
from bottleneck.analysis.advice.advise import RULES
from bottleneck.job import marks
from bottleneck.loader.modes import MAX_MARKS
from bottleneck.loader.recording.plan import MarkPlan, Plan
from bottleneck.measure.ladder import Capabilities, build_ladder
from bottleneck.reports import document, outline
from bottleneck.reports.render import for_terminal, render
from bottleneck.results import format, names, records
from docs.make import tuning
from docs.make.page import parts
from tests.support.results_factory import evidence_of, make_result

# --- architecture -------------------------------------------------------------------------------------------


ROOT = Path(__file__).resolve().parents[2]
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
IN_CODE = re.findall(r"`([^`\n]+)`", re.sub(r"^ *```.*?^ *```$", "", ARCHITECTURE, flags=re.MULTILINE | re.DOTALL))


def test_every_package_has_a_row_and_every_row_a_package():
    section = ARCHITECTURE.partition("\n## The map\n")[2].partition("\n## ")[0]
    rows = [row.strip("|").split(" | ") for row in section.splitlines() if row.startswith("| `")]
    told = {name for row in rows for name in re.findall(r"`(\w+)`", row[0])}
    there = {path.parent.name for path in (ROOT / "bottleneck").glob("*/__init__.py")}
    assert told == there | {path.stem for path in (ROOT / "bottleneck").glob("*.py") if not path.stem.startswith("__")}


def test_every_file_that_is_named_is_there():
    named = {code for code in IN_CODE if re.fullmatch(r"[\w/]+/([\w.]+\.(py|json|md|j2))?", code)}
    assert len(named) > 10
    assert [
        name for name in sorted(named) if not any((top / name).exists() for top in (ROOT, ROOT / "bottleneck"))
    ] == []


def test_the_rule_of_the_page_is_one():
    [code] = re.findall(r"^ {4}```python\n(    @rule.*?)^ {4}```$", ARCHITECTURE, flags=re.MULTILINE | re.DOTALL)
    made = {"__annotations__": {}}
    for module in (rule, names, format, records):
        made |= vars(module)
    exec(textwrap.dedent(code), made)
    assert made["_deeper_queue"].ids == ("deeper-queue",)


@pytest.mark.parametrize("form", document.ALL)
def test_the_table_of_the_page_is_one_in_every_format(form, monkeypatch):
    [code] = re.findall(r"^ {4}```python\n(    def waits.*?)^ {4}```$", ARCHITECTURE, flags=re.MULTILINE | re.DOTALL)
    made = {"__annotations__": {}}
    for module in (document, format, records):
        made |= vars(module)
    exec("from __future__ import annotations\n" + textwrap.dedent(code), made)
    monkeypatch.setitem(outline._OUTLINES, form, (made["waits"],))
    evidence = {"wait_s": {"p50": 0.002, "p95": 0.003, "p99": 0.003, "max": 0.004, "mean": 0.004}}
    shown = make_result(evidence=evidence_of(evidence))
    report = for_terminal(shown, verbose=True).plain() if form == "verbose" else render(shown, form)
    assert all(text in report for text in ("for a batch", "3.00 ms", "On average it takes 4.00 ms."))


# --- advice -------------------------------------------------------------------------------------------------


ADVICE = (ROOT / "docs" / "advice.md").read_text(encoding="utf-8")
SHOWN = re.sub(r"<!--.*?-->", "", ADVICE, flags=re.DOTALL)
ROWS = [
    [cell.strip() for cell in line.strip().strip("|").split("|")]
    for line in SHOWN.splitlines()
    if line.startswith("| `")
]


def ids_of(row):
    return re.findall(r"`([a-z0-9-]+)`", row[0])


def test_every_rule_has_its_row_and_every_row_its_rule():
    told = [id for row in ROWS for id in ids_of(row)]
    assert sorted(told) == sorted(id for rule in RULES for id in rule.ids)


# --- marked stages ------------------------------------------------------------------------------------------


STAGES = (ROOT / "docs" / "stages.md").read_text(encoding="utf-8")
SOURCES = {
    path: " ".join(path.read_text(encoding="utf-8").split())
    for package in ("measure", "loader", "results/warnings")
    for path in (ROOT / "bottleneck" / package).rglob("*.py")
}


def rows_under(heading: str) -> list[list[str]]:
    """The cells of the last table under a heading, without its head."""
    section = STAGES.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_ladder_is_the_one_that_is_measured():
    planned = MarkPlan(sample=("@read", "@decode", "@augment_pixels"), collate=("@mix_up",))
    plan = Plan("marks", within_sample=(), marks=planned)
    ladder = build_ladder(Capabilities("the device is the CPU", hands_over=True, plan=plan))
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
        written = reason.replace("\\_", "_").replace("NAME", "{name}").replace(str(MAX_MARKS), "{modes.MAX_MARKS}")
        assert written in text


def test_the_reserved_names_are_those_that_are_refused():
    refused = STAGES.split("a stage that is measured anyway (", 1)[1].split(")", 1)[0]
    assert tuple(re.findall(r"`(\w+)`", refused)) == marks.RESERVED


def test_the_code_of_the_page_runs(monkeypatch):
    monkeypatch.setattr(marks, "names", {})
    code = re.search(r"^```python\n(.*?)^```$", STAGES, flags=re.MULTILINE | re.DOTALL).group(1)
    names = {"torch": torch}
    exec(code, names)
    assert marks.names.keys() == {"augment_pixels", "decode"}
    assert issubclass(names["Photographs"], torch.utils.data.Dataset)


# --- tuning -------------------------------------------------------------------------------------------------


TUNING = tuning.PAGE.read_text(encoding="utf-8")
AGAIN = "write it again with `make pictures`, and read the difference"


def test_the_page_is_what_this_version_says_of_the_kept_result():
    assert tuning.from_kept_result() == TUNING, AGAIN
    assert all(part.body.strip() for part in parts(TUNING))


def test_the_job_and_the_change_of_the_page_can_be_run(monkeypatch):
    import torch

    from bottleneck.job.checks import check

    monkeypatch.syspath_prepend(str(tuning.EXAMPLE))
    for name in ("job", "compare_transforms"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    threads = torch.get_num_threads()
    try:
        compared = importlib.import_module("compare_transforms")
        given = compared.build()
        changed = compared.with_v2(given)
        check(given)
        check(changed)
    finally:
        torch.set_num_threads(threads)
        for name in ("job", "compare_transforms"):
            sys.modules.pop(name, None)
    assert given.dataset.transform is not changed.dataset.transform
    images = [pipeline.dataset[0][0] for pipeline in (given, changed)]
    assert images[0].shape == images[1].shape
    assert images[0].dtype is images[1].dtype is torch.float32
