"""Loading in the main process: what it takes there is what it takes of a process that has a core to itself."""

from dataclasses import replace

import pytest

from tests.analysis.rule_case import WORKERS, result_of, with_stage
from tests.analysis.rule_cases.working import _HANDED


def loading_s(core_wait, wall_s, cpu_s):
    job = replace(_HANDED, evidence={**_HANDED.evidence, "core_wait_per_cpu_s": core_wait})
    measured = job
    for stage in ("load", "augment", "collate"):
        measured = with_stage(measured, stage, stage, wall_s_per_batch=wall_s, cpu_s_per_batch=cpu_s)
    advice = next(item for item in result_of(measured).advice if item.id == "no-workers-better")
    return advice.evidence["loading_s_per_batch"]


@pytest.mark.parametrize(
    ("core_wait", "wall_s", "cpu_s", "each_s"),
    [
        (0.0, 3e-4, 1e-4, 3e-4),
        (None, 3e-4, 1e-4, 3e-4),
        (1.5, 3e-4, 1e-4, 1.5e-4),  # the rest it waits for a core
        (9.0, 3e-4, 1e-4, 1e-4),
        (9.0, 1e-4, 1.2e-4, 1e-4),  # two threads
    ],
)
def test_the_wait_for_a_core_is_no_part_of_it(core_wait, wall_s, cpu_s, each_s):
    # Guards: beside four workers on two cores a job was promised 1.16x, and made 1.6 times the batches.
    assert loading_s(core_wait, wall_s, cpu_s) == pytest.approx(3 * each_s * WORKERS["num_workers"], rel=0.01)


def test_the_gain_is_a_range_between_the_cold_work_of_workers_and_the_cost_of_the_stages():
    # Guards: a table in two workers was promised 5 times the batches at most, and made 14 times as many.
    measured = _HANDED
    for stage in ("load", "augment", "collate"):
        measured = with_stage(measured, stage, stage, wall_s_per_batch=3e-4, cpu_s_per_batch=3e-4)
    result = result_of(measured)
    gain = next(item for item in result.advice if item.id == "no-workers-better").gain
    assert gain.low == 1.0 < gain.estimate < gain.high <= result.verdict.headroom.estimate
