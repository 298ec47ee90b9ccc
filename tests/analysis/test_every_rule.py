"""Every rule is given to a job that deserves it, and not to its healthy twin; the entries are in `rule_cases/`."""

from __future__ import annotations

import importlib
import json
import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from bottleneck.analysis.advice import advise
from bottleneck.analysis.edits.edits import is_fact
from bottleneck.analysis.readings import read
from bottleneck.errors import ResultFileError
from bottleneck.results.json import plain
from tests.analysis.rule_case import RuleCase, result_of
from tests.analysis.simulated import Job, measure
from tests.support.results_factory import evidence_of

HERE = Path(__file__).parent
CASES: list[RuleCase] = [
    case
    for path in sorted((HERE / "rule_cases").glob("*.py"))
    for case in importlib.import_module(f"tests.analysis.rule_cases.{path.stem}").CASES
]
IDS = {id for rule in advise.RULES for id in rule.ids}


def names(cases):
    return [f"{number}-{case.id}" for number, case in enumerate(cases)]


@pytest.fixture(scope="module")
def results():
    """The results of cases, each analysed once."""
    made = {}

    def get(case):
        if id(case) not in made:
            made[id(case)] = result_of(case)
        return made[id(case)]

    return get


@pytest.mark.parametrize("case", CASES, ids=names(CASES))
def test_a_job_that_deserves_it_is_told_and_its_healthy_twin_is_not(case, results):
    given = [item for item in results(case.deserves).advice if item.id == case.id]

    assert len(given) == 1
    assert given[0].stage == case.stage
    assert case.id not in {item.id for item in results(case.healthy).advice}


@pytest.mark.parametrize("case", CASES, ids=names(CASES))
def test_what_is_told_has_numbers_and_a_remedy_and_a_stage_of_the_result(case, results):
    result = results(case.deserves)

    for item in result.advice:
        assert item.id in IDS
        assert item.stage is None or item.stage in {stage.name for stage in result.stages}
        assert item.title
        assert item.how
        assert re.search(r"\d", item.why), "the numbers of this run"
        assert item.evidence
        json.dumps(dict(item.evidence), allow_nan=False)
        assert (item.gain is None) == (item.gain_basis is None)
        assert item.gain is None or item.gain.low <= item.gain.estimate <= item.gain.high
    facts = [is_fact(item) for item in result.advice]
    assert facts == sorted(facts)


ODD = (None, "x", True, -1, 0, 0.0, 1e12, float("nan"), 10**400, [], {}, [{}], {"x": 1})


def with_odd_leaves(value):
    """The value with one of its leaves, or branches, of another type or size, one after the other."""
    yield from ODD
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in list(children):
        for odd in with_odd_leaves(child):
            changed = value.copy()
            changed[key] = odd
            yield changed


@pytest.mark.parametrize("case", CASES, ids=names(CASES))
def test_what_is_missing_or_of_another_type_is_no_reason_to_fail(case):
    measurement = measure(case.deserves) if isinstance(case.deserves, Job) else case.deserves
    readings, result = read(measurement), result_of(measurement)
    for part in ("evidence", "pipeline", "environment"):
        for changed in with_odd_leaves(plain(getattr(measurement, part), part)):
            if isinstance(changed, dict):
                with suppress(ResultFileError):  # what cannot be read from a file reaches no rule
                    odd = replace(measurement, **{part: evidence_of(changed) if part == "evidence" else changed})
                    assert all(item.how for item in advise.advise(odd, readings, result.stages, result.verdict))


def test_the_page_tells_the_keys_of_the_evidence(results):
    page = (HERE.parents[1] / "docs" / "advice.md").read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| `")]
    told = {id: set(re.findall(r"`(\w+)`", row[2])) for row in rows for id in re.findall(r"`([a-z0-9-]+)`", row[0])}
    for case in CASES:
        for item in results(case.deserves).advice:
            assert set(item.evidence) <= told[item.id], item.id


def test_every_rule_has_a_case():
    assert {case.id for case in CASES} == IDS


def test_an_id_belongs_to_one_rule():
    every = [id for rule in advise.RULES for id in rule.ids]
    assert sorted(every) == sorted(set(every))
