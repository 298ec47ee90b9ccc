"""The page about the architecture names what there is: packages, files, and a rule that works."""

import re
import textwrap
from pathlib import Path

import pytest

from bottleneck.analysis.advice import rule
from bottleneck.reports import document, outline
from bottleneck.reports.render import for_terminal, render
from bottleneck.results import format, names, records
from tests.support.results_factory import evidence_of, make_result

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
IN_CODE = re.findall(r"`([^`\n]+)`", re.sub(r"^ *```.*?^ *```$", "", PAGE, flags=re.MULTILINE | re.DOTALL))


def test_every_package_has_a_row_and_every_row_a_package():
    section = PAGE.partition("\n## The map\n")[2].partition("\n## ")[0]
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
    [code] = re.findall(r"^ {4}```python\n(    @rule.*?)^ {4}```$", PAGE, flags=re.MULTILINE | re.DOTALL)
    made = {"__annotations__": {}}
    for module in (rule, names, format, records):
        made |= vars(module)
    exec(textwrap.dedent(code), made)
    assert made["_deeper_queue"].ids == ("deeper-queue",)


@pytest.mark.parametrize("form", document.ALL)
def test_the_table_of_the_page_is_one_in_every_format(form, monkeypatch):
    [code] = re.findall(r"^ {4}```python\n(    def handoff.*?)^ {4}```$", PAGE, flags=re.MULTILINE | re.DOTALL)
    made = {"__annotations__": {}}
    for module in (document, format, records):
        made |= vars(module)
    exec("from __future__ import annotations\n" + textwrap.dedent(code), made)
    monkeypatch.setitem(outline._OUTLINES, form, (made["handoff"],))
    evidence = {"handoff": {"s_per_batch": 0.004, "main_cpu_s_per_batch": 0.003, "worker_cpu_s_per_batch": 0.002}}
    shown = make_result(evidence=evidence_of(evidence))
    report = for_terminal(shown, verbose=True).plain() if form == "verbose" else render(shown, form)
    assert all(text in report for text in ("CPU time a batch", "worker", "3.00 ms", "By the clock it takes 4.00 ms."))
