"""Advice on workers, followed to the letter in jobs whose time is known for any number of them."""

import itertools

import pytest

from bottleneck.analysis.advice.edits import claims_at_most
from tests.analysis.worker_model import Model

STEPS_S = (1e-6, 0.005)
LOADS_S = (31e-6, 0.005, 0.05)
HANDOFF_S = 0.0006
CORES = (2, 16)
MODELS = [
    Model(step_s, load_s, HANDOFF_S, cores, on_cpu, waits=waits)
    for step_s, load_s, cores, on_cpu, waits in itertools.product(STEPS_S, LOADS_S, CORES, (False, True), (False, True))
]
NOISE = 1.02
BEYOND = 1.25
"""Times the realised gain that an advice may promise, where it does not call its gain an upper bound."""


def next_workers(result):
    """The number of workers that the first advice about it proposes, with that advice; None where none does."""
    proposals = ((a.evidence.get("proposed", {}).get("num_workers"), a) for a in result.advice)
    return next((found for found in proposals if found[0] is not None), None)


def name(model):
    return "-".join(f"{value}" for value in vars(model).values())


@pytest.mark.parametrize("model", MODELS, ids=map(name, MODELS))
def test_no_advice_about_workers_makes_a_job_slower_and_none_leads_back(model):
    for begin in (0, 1, 4, 24):
        workers, seen = begin, {begin}
        while (found := next_workers(model.diagnosis(workers))) is not None:
            wanted, advice = found
            realised = model.seconds(workers) / model.seconds(wanted)
            assert realised > 1 / NOISE, (workers, wanted, advice.id)
            assert wanted not in seen, (begin, seen, wanted)
            if advice.gain is not None:
                assert claims_at_most(advice) or advice.gain.estimate <= BEYOND * realised, (workers, wanted, advice)
            seen.add(wanted)
            workers = wanted


def test_workers_that_help_are_advised_and_those_that_do_not_are_not():
    # Guards: a rule that never advises anything would pass the test above.
    accelerator = Model(0.01, 0.03, 0.0005, 8, on_cpu=False)
    wanted, advice = next_workers(accelerator.diagnosis(0))
    assert wanted == 4
    assert advice.gain.estimate == pytest.approx(accelerator.seconds(0) / accelerator.seconds(4), rel=0.05)
    assert claims_at_most(advice)
    assert next_workers(accelerator.diagnosis(1)) is not None

    assert next_workers(Model(0.005, 0.005, 0.0005, 2, on_cpu=True).diagnosis(0)) is None


def test_a_batch_that_is_made_faster_than_it_is_handed_over_gets_no_workers():
    assert next_workers(Model(1e-7, 31e-6, 0.0006, 16, on_cpu=False).diagnosis(0)) is None


def test_a_gain_is_not_promised_beyond_the_cores():
    waits = Model(0.001, 0.1, 0.0005, 2, on_cpu=False)
    advice = next_workers(waits.diagnosis(1))[1]

    assert advice.gain.estimate <= 2


def test_a_step_on_the_cpu_that_got_fewer_cores_than_threads_needs_them_all_the_same():
    job = Model(0.005, 0.02, 0.0005, 2, on_cpu=True, seen_cores=0.9)

    assert next_workers(job.diagnosis(0)) is None
    assert next_workers(job.diagnosis(1)) is None
