"""Two measured jobs with a known truth: they are called faster, slower, the same or undecided."""

from dataclasses import replace

import pytest

from bottleneck.analysis.analyse import analyse
from bottleneck.analysis.comparison import compare, lost_throughput
from bottleneck.errors import UsageError
from tests.analysis.simulated import AUGMENT_BOUND, DEVICE_BOUND, Job, measure

# What free augmentation would give; a step of 10.5 ms instead of 24.7.
MENDED = replace(
    AUGMENT_BOUND,
    coupled={**AUGMENT_BOUND.coupled, "before_augment": 0.0105, "raw": 0.0124},
    drained={**AUGMENT_BOUND.drained, "before_augment": 0.0102, "raw": 0.0123},
    without={**AUGMENT_BOUND.without, "copy": 0.0123, "handoff": 0.0121, "collate": 0.0120, "load": 0.0105},
)


def scaled(job: Job, factor: float, *names: str) -> Job:
    """The job with the time of some experiments, or of all, multiplied."""
    return replace(job, coupled={n: t * factor if not names or n in names else t for n, t in job.coupled.items()})


def diagnosed(job: Job, seed: int = 0, **how):
    return analyse(measure(job, seed=seed, **how))


def findings(compared):
    return {change.name: change.finding for change in compared.experiments}


def test_what_became_faster_is_told_apart_from_what_did_not():
    compared = compare(diagnosed(AUGMENT_BOUND), diagnosed(MENDED, seed=1))
    assert findings(compared) == {
        **dict.fromkeys(("device", "host", "after_collate", "before_collate"), "within_noise"),
        **dict.fromkeys(("before_augment", "raw"), "faster"),
    }
    assert compared.throughput.speedup.low < 24.7 / 12.4 < compared.throughput.speedup.high
    assert compared.throughput.speedup.high - compared.throughput.speedup.low < 0.1
    assert compared.sentence.startswith("head is faster than base: ")


def test_the_other_way_round_it_is_slower_by_the_inverse():
    there = compare(diagnosed(AUGMENT_BOUND), diagnosed(MENDED, seed=1))
    back = compare(diagnosed(MENDED, seed=1), diagnosed(AUGMENT_BOUND))
    assert back.throughput.finding == "slower"
    assert back.throughput.speedup.estimate == pytest.approx(1 / there.throughput.speedup.estimate)
    assert back.throughput.speedup.low == pytest.approx(1 / there.throughput.speedup.high)


def test_a_change_under_the_margin_is_within_noise_however_clearly_it_was_measured():
    clearly = {"rounds": 40, "noise": 0.001}
    compared = compare(diagnosed(AUGMENT_BOUND, **clearly), diagnosed(scaled(AUGMENT_BOUND, 1.02), 1, **clearly))
    assert compared.throughput.speedup.high < 1
    assert set(findings(compared).values()) == {"within_noise"}


def test_two_runs_of_one_job_are_hardly_ever_called_different():
    # Guards: findings that hold one by one only. So much noise leaves the margin without a say: one by one, at least
    # one of six experiments would be called different in a fifth of the pairs and more.
    runs = [diagnosed(AUGMENT_BOUND, seed=seed, noise=0.4) for seed in range(200)]
    pairs = zip(runs[::2], runs[1::2], strict=True)
    wrong = [p for p in pairs if {"faster", "slower"} & set(findings(compare(*p)).values())]
    assert len(wrong) <= 10


def test_the_new_bottleneck_is_named():
    compared = compare(diagnosed(AUGMENT_BOUND), diagnosed(DEVICE_BOUND, seed=1))
    assert compared.base.bottleneck == "augment"
    assert compared.head.bottleneck == "compute"
    assert compared.sentence.endswith("The bottleneck was augment and is now compute.")
    assert compare(diagnosed(MENDED), diagnosed(MENDED)).sentence.endswith(
        f"The bottleneck is still {diagnosed(MENDED).verdict.bottleneck}."
    )


def test_another_train_step_or_machine_is_told_by_the_device_experiment():
    # Guards: a machine that was busy during one of the runs is taken for a change of the input pipeline.
    compared = compare(diagnosed(AUGMENT_BOUND), diagnosed(scaled(AUGMENT_BOUND, 1.3), seed=1))
    assert findings(compared)["device"] == "slower"
    assert "train step changed, or the machine" in compared.warnings[0]
    assert compare(diagnosed(AUGMENT_BOUND), diagnosed(MENDED, seed=1)).warnings == ()


def test_without_the_job_as_it_is_nothing_is_claimed():
    nothing = replace(AUGMENT_BOUND, coupled={"device": 0.01})
    compared = compare(diagnosed(AUGMENT_BOUND), diagnosed(nothing))
    assert compared.throughput.finding is None
    assert "cannot be compared" in compared.sentence


@pytest.mark.parametrize(
    ("part", "key", "values"),
    [
        ("environment", "device", ("cpu", "cuda:0")),
        ("environment", "device_name", ("NVIDIA A100", "NVIDIA H100")),
        ("environment", "cpu_cores_available", (8.0, 16.0)),
        ("environment", "torch", ("2.4.0", "2.5.0")),
        ("pipeline", "batch_size", (16, 32)),
        ("pipeline", "dataset_length", (1000, None)),
    ],
)
def test_unlike_results_are_compared_only_by_force_and_then_it_is_said(part, key, values):
    base, head = (diagnosed(replace(AUGMENT_BOUND, **{part: {key: value}})) for value in values)
    with pytest.raises(UsageError, match=key) as refused:
        compare(base, head)
    assert "--force" in str(refused.value)
    forced = compare(base, head, force=True)
    assert [difference.key for difference in forced.unlike] == [key]


def test_lost_throughput_has_its_bounds_the_right_way_round():
    lost = lost_throughput(compare(diagnosed(AUGMENT_BOUND), diagnosed(scaled(AUGMENT_BOUND, 1.25), seed=1)))
    assert 0.17 < lost.low < lost.estimate < lost.high < 0.23
