"""The page about the architecture names what there is: packages, files, methods, and a rule that works."""

import re
import textwrap
from pathlib import Path

import pytest

from bottleneck.analysis.advice import rule
from bottleneck.reports import document
from bottleneck.reports.content import outline
from bottleneck.reports.render import for_terminal, render
from bottleneck.results import format, names, records
from tests.support.results_factory import evidence_of, make_result

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
SOURCES = {path: path.read_text(encoding="utf-8") for path in (ROOT / "bottleneck").rglob("*.py")}
IN_CODE = re.findall(r"`([^`\n]+)`", re.sub(r"^ *```.*?^ *```$", "", PAGE, flags=re.MULTILINE | re.DOTALL))


def test_every_package_has_a_row_and_every_row_a_package():
    section = PAGE.partition("\n## Packages\n")[2].partition("\n## ")[0]
    rows = [row.strip("|").split(" | ") for row in section.splitlines() if row.startswith("| `")]
    told = [name for row in rows for name in re.findall(r"`(\w+)`", row[0])]
    there = {path.parent.name for path in (ROOT / "bottleneck").glob("*/__init__.py")}
    there |= {path.stem for path in (ROOT / "bottleneck").glob("*.py") if not path.stem.startswith("__")}
    assert set(told) == there
    for row in rows:
        folders = [ROOT / "bottleneck", *(ROOT / "bottleneck" / name for name in re.findall(r"`(\w+)`", row[0]))]
        for name in re.findall(r"`([\w/]+\.py)`", row[2]):
            assert any((folder / name).is_file() for folder in folders), name


def test_every_file_with_its_folder_is_there():
    named = {code for code in IN_CODE if re.fullmatch(r"[\w/]+/[\w.]+\.(py|json|md|j2)", code)}
    assert len(named) > 20
    # Where the package is clear, files are named from there.
    folders = [ROOT, ROOT / "bottleneck", *(path.parent for path in SOURCES if path.name == "__init__.py")]
    assert [name for name in sorted(named) if not any((folder / name).is_file() for folder in folders)] == []


def test_every_method_is_there():
    named = {found.groups() for code in IN_CODE if (found := re.match(r"([A-Z][a-z]\w+)\.(\w+)", code))}
    assert len(named) > 20
    for cls, method in sorted(named):
        holders = [text for text in SOURCES.values() if re.search(rf"^class {cls}\b", text, flags=re.MULTILINE)]
        assert any(f"def {method}(" in text for text in holders), f"{cls}.{method}"


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
