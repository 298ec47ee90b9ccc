"""The page about advice has a row for every id that a rule may yield, and for no other."""

import re
from pathlib import Path

import pytest

from bottleneck.analysis.advice.rules import RULES

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "advice.md").read_text(encoding="utf-8")
SHOWN = re.sub(r"<!--.*?-->", "", PAGE, flags=re.DOTALL)
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


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_a_row_says_what_triggers_it_its_evidence_its_remedy_and_its_source(row):
    assert len(row) == 5
    assert all(row)


def test_the_pages_that_it_points_to_are_there():
    for link in re.findall(r"\]\(([^)#]+)\)", SHOWN):
        assert link.startswith("https://") or (ROOT / "docs" / link).is_file(), link
