from dataclasses import replace

import pytest

from bottleneck.analysis.analyse import analyse
from bottleneck.analysis.sentence import budget_for
from bottleneck.analysis.verdict import choose
from bottleneck.results.records import Interval, Stage
from tests.analysis.simulated import AUGMENT_BOUND, DEVICE_BOUND, LAST_STRAW, TIED, Job, keep_rounds, measure


def near(estimate, half_width=0.01):
    return Interval(estimate, estimate - half_width, estimate + half_width)


def stage(name, *, gain=None, cost=None, exposed=None):
    return Stage(
        name=name,
        inner="inner",
        outer="outer",
        cost_s_per_batch=cost if cost is None or isinstance(cost, Interval) else near(cost, 1e-4),
        exposed_s_per_batch=None if exposed is None else near(exposed, 1e-4),
        exposed_share=None,
        gain_if_free=gain,
        finding="real",
    )


def named(*stages):
    """The bottleneck of an input-bound job, and what contributes."""
    choice = choose("input_bound", stages)
    return choice.bottleneck, choice.contributors


def bottleneck(*stages):
    return named(*stages)[0]


def test_only_of_an_input_bound_job_a_stage_of_the_input_is_named():
    stages = [stage("augment", gain=near(1.5), cost=0.01)]
    choice = choose("device_bound", stages)
    assert (choice.bottleneck, choice.contributors) == ("compute", ())
    assert choose("undecided", stages).bottleneck is None


def test_the_largest_gain_wins_over_a_larger_cost():
    augment, copy = stage("augment", gain=near(1.4), cost=0.020), stage("copy", gain=near(2.0), cost=0.004)
    assert named(augment, copy) == ("copy", ())


def test_cost_decides_between_gains_that_overlap():
    collate = stage("collate", gain=near(1.21, 0.03), cost=0.003)
    augment = stage("augment", gain=near(1.22, 0.03), cost=0.014)
    load = stage("load", gain=near(1.25, 0.03), cost=0.004)
    assert named(collate, augment, load) == ("augment", ("load", "collate"))


def test_gains_that_differ_by_less_than_the_margin_are_tied_however_precise():
    augment, load = (
        stage("augment", gain=near(1.230, 0.001), cost=0.014),
        stage("load", gain=near(1.240, 0.001), cost=0.004),
    )
    assert bottleneck(augment, load) == "augment"


def test_exposed_time_stands_in_for_an_unknown_cost():
    augment, load = stage("augment", gain=near(1.3, 0.1), exposed=0.014), stage("load", gain=near(1.3, 0.1), cost=0.004)
    assert bottleneck(augment, load) == "augment"


def test_a_noisy_wide_gain_does_not_win():
    augment = stage("augment", gain=near(1.8, 0.05), cost=0.014)
    assert named(augment, stage("handoff", gain=Interval(1.9, 0.8, 4.5), cost=0.030)) == ("augment", ())


def test_a_gain_that_is_sure_but_next_to_nothing_does_not_rule_out_the_others():
    collate = stage("collate", gain=Interval(1.16, 1.02, 1.31), cost=0.00004)
    assert named(collate, stage("load", gain=Interval(3.4, 0.99, 12.2), cost=0.0103)) == ("load", ())


def test_a_noisy_wide_leader_does_not_pull_in_a_stage_that_clearly_gains_less_than_another():
    augment = stage("augment", gain=near(1.8, 0.05), cost=0.014)
    handoff = stage("handoff", gain=Interval(2.5, 1.1, 5.6), cost=0.001)
    first, others = named(augment, handoff, stage("load", gain=near(1.2, 0.05), cost=0.030))
    assert first == "augment"
    assert "load" not in others


def test_a_cost_that_is_larger_by_noise_alone_does_not_win_over_a_gain_that_seems_larger():
    # A collation of 43 ms beside a hand-off of 27 ms, on a machine whose memory others use.
    collate = stage("collate", gain=Interval(1.65, 1.29, 2.11), cost=Interval(0.0433, 0.0420, 0.0446))
    handoff = stage("handoff", gain=Interval(1.23, 1.11, 1.37), cost=Interval(0.0460, 0.0240, 0.0680))
    assert bottleneck(collate, handoff) is None
    clearly = replace(handoff, cost_s_per_batch=Interval(0.0660, 0.0640, 0.0680))
    assert bottleneck(collate, clearly) == "handoff"


def test_a_stage_that_clearly_gains_nothing_does_not_win_by_its_cost():
    augment = stage("augment", gain=Interval(1.1, 0.98, 1.23), cost=0.005)
    assert bottleneck(augment, stage("handoff", gain=Interval(1.0, 0.98, 1.02), cost=0.030)) == "augment"


def test_cost_names_one_of_several_that_hold_the_job_equally():
    handoff = stage("handoff", gain=near(1.0), cost=0.010, exposed=0.010)
    choice = choose("input_bound", [handoff, stage("load", gain=near(1.0), cost=0.012, exposed=0.0)])
    assert (choice.bottleneck, choice.contributors, choice.basis) == ("load", (), "shared")


def test_without_gains_exposed_time_says_which_side_and_cost_which_stage():
    loader = stage("load", cost=0.004, exposed=0.0041), stage("augment", cost=0.014, exposed=0.0005)
    blamed = choose("input_bound", [stage("copy", cost=0.0001, exposed=0.0001), *loader])
    assert (blamed.bottleneck, blamed.basis) == ("augment", "inferred")
    assert bottleneck(stage("copy", cost=0.01, exposed=0.01), *loader) == "copy"


def test_nothing_is_named_when_nothing_is_known():
    assert bottleneck(stage("load")) is None
    assert bottleneck() is None


@pytest.mark.parametrize("noise", [0.003, 0.02])
def test_the_last_straw_is_not_blamed(noise):
    right = 0
    for seed in range(40):
        verdict = analyse(measure(LAST_STRAW, noise=noise, rounds=10, seed=seed)).verdict
        right += (verdict.state, verdict.bottleneck) == ("input_bound", "augment")

    assert right >= 39


def test_contributors_to_the_last_straw_are_named_where_the_gains_cannot_be_told_apart():
    named = [analyse(measure(LAST_STRAW, noise=0.07, rounds=8, seed=seed)).verdict for seed in range(40)]

    assert sum(v.bottleneck == "augment" for v in named) >= 39
    assert sum("load" in v.contributors for v in named) >= 30
    assert sum("collate" in v.contributors for v in named) >= 10
    assert not any("handoff" in v.contributors for v in named)


def test_the_verdict_on_known_jobs():
    for seed in range(40):
        augment = analyse(measure(AUGMENT_BOUND, noise=0.02, drift=0.2, seed=seed)).verdict
        device = analyse(measure(DEVICE_BOUND, noise=0.01, drift=0.2, seed=seed)).verdict
        assert (augment.state, augment.bottleneck) == ("input_bound", "augment")
        assert (device.state, device.bottleneck) == ("device_bound", "compute")


def sentence_of(job):
    return analyse(measure(job, noise=0)).verdict.sentence


def test_the_sentence_of_an_input_bound_job():
    assert sentence_of(AUGMENT_BOUND) == (
        "The input pipeline limits this job to 38.1 % (38.1–38.1 %) of what its device can do. "
        "Bottleneck: augment. "
        "If augment were free: 2.35x (2.35–2.35) the throughput. Upper bound: 3,404 samples/s, now 1,296."
    )


def test_an_upper_bound_is_never_below_the_job():
    # Guards: 'Upper bound: 1.03 samples/s, now 1.07', where noise made the device the slower of the two.
    coupled = {**DEVICE_BOUND.coupled, "device": DEVICE_BOUND.coupled["raw"] * 1.005}
    assert sentence_of(replace(DEVICE_BOUND, coupled=coupled)).endswith("Upper bound: 1,056 samples/s, now 1,056.")


def test_on_a_cpu_the_sentence_names_the_bottleneck_and_no_share_of_the_device():
    sentence = sentence_of(replace(AUGMENT_BOUND, environment={"device": "cpu"}))
    assert sentence.startswith(
        "The job waits for its data. It trains on the CPU, where model and workers share the cores. "
        "Bottleneck: augment. "
    )
    assert sentence.endswith("Now 1,296 samples/s.")
    assert "of what its device" not in sentence


def test_the_sentence_names_contributors():
    assert "Bottleneck: augment. Contributing: load and collate. " in sentence_of(TIED)


def test_an_unsure_gain_does_not_win_over_a_stage_whose_gain_was_not_measured():
    unsure = stage("handoff", gain=Interval(1.32, 0.22, 7.89), cost=0.001, exposed=0.001)
    unknown = stage("augment", cost=0.011, exposed=0.010)
    assert bottleneck(unsure, unknown) == "augment"
    sure = stage("handoff", gain=near(1.32), cost=0.001, exposed=0.001)
    assert bottleneck(sure, unknown) == "handoff"


def test_nothing_is_inferred_from_costs_of_which_some_are_missing():
    collate = stage("collate", cost=0.003, exposed=0.004)
    unmeasured = stage("augment", exposed=0.002)
    assert bottleneck(collate, unmeasured) is None
    assert bottleneck(collate, stage("augment", cost=0.011)) == "augment"


def test_nothing_is_inferred_from_exposed_times_of_which_some_are_missing():
    collate = stage("collate", exposed=0.0002)
    assert bottleneck(collate, stage("fetch")) is None
    assert bottleneck(collate, stage("fetch", exposed=0.018)) == "fetch"


def test_a_stage_that_clearly_takes_the_worker_longer_is_not_passed_over_for_a_gain_that_was_measured_better():
    shorter = stage("augment", gain=Interval(1.3, 1.05, 1.6), cost=0.003)
    longer = stage("load", gain=Interval(2.4, 0.9, 6.0), cost=0.019)
    assert named(shorter, longer) == ("load", ("augment",))
    unsure = replace(longer, cost_s_per_batch=Interval(0.019, 0.002, 0.036))
    assert bottleneck(shorter, unsure) is None
    useless = replace(longer, gain_if_free=near(1.0))
    assert bottleneck(shorter, useless) == "augment"


def test_what_crosses_process_is_not_passed_over_for_what_takes_the_worker_longer():
    load = stage("load", gain=Interval(1.2, 0.9, 1.6), cost=0.02)
    for name, chosen in (("handoff+collate", "handoff+collate"), ("collate", "load")):
        sure = stage(name, gain=near(1.2), cost=0.01)
        assert bottleneck(sure, load) == chosen


def test_a_small_gain_that_is_sure_is_not_named_beside_a_far_larger_one_that_is_not():
    load = stage("load", gain=Interval(1.12, 1.04, 1.21), cost=0.001)
    augment = stage("augment", gain=Interval(4.0, 0.9, 18.0), cost=0.018)
    unsure = replace(augment, cost_s_per_batch=Interval(0.018, -0.005, 0.041))
    assert bottleneck(unsure, load) is None
    cheap = replace(augment, cost_s_per_batch=near(0.0005))
    assert bottleneck(cheap, load) == "load"
    quiet = replace(unsure, gain_if_free=Interval(1.15, 0.9, 18.0))
    assert bottleneck(quiet, load) == "load"


def test_a_gain_that_is_sure_is_not_named_beside_a_larger_one_of_a_stage_that_seems_to_cost_more():
    # Guards: of a job whose loading gained 2.2x and cost the most, augmentation was named, by luck of its two blocks.
    augment = replace(stage("augment", gain=Interval(1.89, 1.63, 2.19)), cost_s_per_batch=Interval(0.067, -0.05, 0.19))
    load = replace(stage("load", gain=Interval(2.1, 0.99, 4.4)), cost_s_per_batch=Interval(0.069, 0.011, 0.128))
    assert bottleneck(augment, load) is None
    cheaper = replace(load, cost_s_per_batch=Interval(0.06, 0.011, 0.128))
    assert bottleneck(augment, cheaper) == "augment"


def test_where_nothing_clearly_gains_only_a_cost_that_is_clearly_the_largest_names_a_stage():
    unsure = Interval(0.98, 0.64, 1.49)
    noisy = replace(stage("collate", gain=unsure), cost_s_per_batch=Interval(0.00028, -0.0074, 0.0080))
    unknown = stage("augment", gain=Interval(3.2, 0.0, 479.4))
    load = stage("load", gain=unsure, cost=0.011)
    handoff = stage("handoff", gain=unsure, cost=0.001)
    assert bottleneck(noisy, unknown) is None
    assert bottleneck(noisy, handoff) is None
    assert bottleneck(load, unknown) is None
    assert bottleneck(load, handoff) == "load"


def test_a_stage_that_seems_to_cost_less_than_nothing_is_not_named():
    odd = stage("collate", gain=Interval(1.5, 1.06, 2.09), cost=-0.0012, exposed=0.004)
    augment = stage("augment", gain=Interval(1.3, 0.9, 1.8), cost=0.011, exposed=0.010)
    assert named(odd, augment) == ("augment", ())
    assert bottleneck(odd) == "collate"


def test_the_sentence_of_a_device_bound_job():
    assert sentence_of(DEVICE_BOUND) == (
        "The train step limits this job; the input pipeline costs 1.0 % (1.0–1.0 %) of its throughput. Bottleneck: "
        "compute. Upper bound: 1,067 samples/s, now 1,056."
    )


def test_the_sentence_of_an_undecided_job_says_what_would_decide_it():
    job = Job(coupled={"device": 0.010, "raw": 0.0107})
    verdict = analyse(measure(job, noise=0.04, rounds=6, seed=4)).verdict

    assert (verdict.state, verdict.bottleneck) == ("undecided", None)
    assert verdict.further_rounds > 0
    assert verdict.sentence.startswith("Undecided: the input pipeline costs this job ")
    assert f"About {verdict.further_rounds} further rounds would decide it: --budget " in verdict.sentence


def test_the_sentence_after_one_round_promises_no_interval():
    verdict = analyse(keep_rounds(measure(AUGMENT_BOUND), 1)).verdict

    assert (verdict.state, verdict.efficiency, verdict.headroom) == ("undecided", None, None)
    assert "no interval" in verdict.sentence


def test_the_sentence_says_what_was_not_measured_and_nothing_is_advised():
    result = analyse(keep_rounds(measure(AUGMENT_BOUND), 0))
    assert result.verdict.sentence.startswith("Undecided: device and raw were not measured, ")
    assert result.advice == ()


def test_the_sentence_still_gives_the_loss_where_no_stage_can_be_named():
    ends = measure(Job(coupled={"device": 0.010, "raw": 0.020}), noise=0)
    assert analyse(replace(ends, stages=())).verdict.sentence == (
        "The input pipeline limits this job to 50.0 % (50.0–50.0 %) of what its device can do. "
        "The limiting stage cannot be resolved yet. Give it a larger --budget. "
        "Upper bound: 3,200 samples/s, now 1,600."
    )


@pytest.mark.parametrize(
    ("further", "rounds", "seconds", "budget"),
    [(6, 6, 20.0, "40s"), (6, 6, 43.0, "90s"), (12, 6, 60.0, "3m"), (6, 0, 20.0, None), (6, 6, 0.0, None)],
)
def test_the_budget_that_decides_holds_the_rounds_so_far_and_the_further_ones(further, rounds, seconds, budget):
    assert budget_for(further, rounds, seconds) == budget
