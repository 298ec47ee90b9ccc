"""Advice that a tuning can prove names the command, with the changes that there are and no others."""

from dataclasses import replace

import pytest

from bottleneck.analysis.advice import advise as rules
from bottleneck.analysis.edits.edits import (
    LINE,
    NOT_IN_SCRIPTS,
    PROVING,
    UNPROVEN,
    changes_for,
    edit_of,
    proof_of,
    why_unproven,
)
from bottleneck.reports.render import for_terminal, render
from bottleneck.results.evidence import LoaderFacts
from bottleneck.tuner.changes import BUILT_IN
from tests.analysis.rule_case import result_of
from tests.analysis.test_every_rule import CASES
from tests.support.rank_results import make_rank
from tests.support.results_factory import make_result
from tests.support.tuning_factory import make_before

COMMAND = "bottleneck tune train.py:build --try num_workers"


def test_the_names_are_those_of_the_changes_and_the_ids_those_of_the_rules():
    proven: dict[str, tuple[str, ...]] = {}
    for change in BUILT_IN:
        for advice in change.advice:
            proven[advice] = (*proven.get(advice, ()), change.name)
    assert proven == PROVING
    assert set(PROVING) <= {id for rule in rules.RULES for id in rule.ids}


def test_advice_names_the_command_that_tries_it():
    result = make_before()
    more, cheaper = result.advice
    assert proof_of(result, [more]) == COMMAND
    assert proof_of(result, [cheaper]) == ""
    assert proof_of(result, [more, cheaper, replace(more, id="uneven-samples")]) == f"{COMMAND} --try in_order"
    spaced = replace(result, pipeline={"target": "my jobs/train.py:build"})
    assert proof_of(spaced, [more]) == "bottleneck tune 'my jobs/train.py:build' --try num_workers"


def test_who_launches_a_job_of_several_ranks_is_not_known():
    result = make_before()
    assert proof_of(replace(result, ranks=(make_rank(0), make_rank(1))), result.advice) == ""


@pytest.mark.parametrize("pipeline", [{}, {"target": 3}, {"target": "bin/train", "source": "script"}])
def test_what_tune_cannot_take_has_no_command(pipeline):
    assert proof_of(replace(make_before(), pipeline=pipeline), make_before().advice) == ""


@pytest.mark.parametrize(("target", "job"), [("my train.py", "'my train.py'"), ("package.train", "-m package.train")])
def test_of_a_script_are_tried_the_changes_that_leave_its_loop_alone(target, job):
    result = replace(make_before(), pipeline={"target": target, "source": "script"})
    more, _ = result.advice
    assert proof_of(result, [more]) == f"bottleneck tune --try num_workers {job} ARGS"
    alone = replace(more, prove=("bottleneck", "tune", "--try", "num_workers", target))
    assert proof_of(result, [alone]) == f"bottleneck tune --try num_workers {job}"
    with_arguments = replace(more, prove=(*alone.prove, "--key", "secret"))
    assert proof_of(result, [with_arguments]) == f"bottleneck tune --try num_workers {job} ARGS"
    quicker = replace(more, id="mixed-precision", how="autocast(device)", evidence={})
    assert proof_of(result, [quicker]) == ""
    assert "the script's loop" in why_unproven(result, quicker)
    assert {c.name for c in BUILT_IN if c.advice and not (c.on == "loader" or c.in_script)} == NOT_IN_SCRIPTS


def test_each_edit_that_a_rule_advises_has_a_change_that_proves_it_or_says_why_not():
    edits = set()
    for case in CASES:
        result = result_of(case.deserves)
        for item in result.advice:
            if edit_of(item, result.pipeline, result.evidence) is not None:
                edits.add(item.id)
                assert any(changes_for(result, item)) or why_unproven(result, item), item.id
    assert edits >= {"more-workers", "crop-before", "worker-affinity", "uneven-shards"}
    assert set(UNPROVEN) <= edits | {LINE}
    assert not set(UNPROVEN) & set(PROVING)


def test_of_a_stream_the_number_of_workers_is_not_tried():
    result = make_before()
    stream = replace(result, evidence=replace(result.evidence, loader=LoaderFacts(iterable=True)))
    assert proof_of(stream, stream.advice) == ""


def test_every_format_shows_the_command_once_for_each_place_where_the_advice_is():
    result = make_before()
    assert f"Prove it: {COMMAND}\n" in render(result, "text")
    assert " ".join(for_terminal(result, verbose=True).plain().split()).count(COMMAND) == 1
    assert f"Prove it: `{COMMAND}`" in render(result, "markdown")
    assert f"Prove it: <code>{COMMAND}</code>" in render(result, "html")
    assert "Prove it" not in render(make_result(), "text")
