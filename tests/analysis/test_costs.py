"""Costs by leaving one stage out, what bounds them, and how two of them are compared."""

import math
from dataclasses import replace

import pytest

from bottleneck.analysis.analyse import analyse
from bottleneck.analysis.attribution import attribute
from bottleneck.analysis.costs import Costs
from bottleneck.analysis.readings import read
from bottleneck.results.evidence import Evidence
from tests.analysis.simulated import AUGMENT_BOUND, LADDER, Job, measure

# To load takes 4 ms, to augment 14 ms and to collate 3 ms; 1 ms of the loop belongs to no stage.
WORKER = replace(AUGMENT_BOUND, workers=0.022, alone={"collate": 0.019, "augment": 0.008, "load": 0.018})


def costs_of(job, **options):
    return Costs(read(measure(job, **options)))


def stages_of(job, **options):
    readings = read(measure(job, **options))
    return {stage.name: stage for stage in attribute(readings, Costs(readings))}


def test_a_cost_is_the_time_that_goes_with_the_stage():
    # The rungs of the loader alone say 0.9, 20.4 and 2.1 ms.
    costs = costs_of(WORKER, noise=0)
    found = {name: costs.interval(name).estimate for name in ("collate", "augment", "load")}
    assert found == pytest.approx({"collate": 0.003, "augment": 0.014, "load": 0.004})


def bounds(cost):
    """Return the bounds of an interval without the differences of the same code between processes."""
    repeats_s = 0.003 * cost.estimate
    return cost.low + repeats_s, cost.high - repeats_s


def test_the_price_of_serving_is_taken_out_and_widens_the_interval():
    # Without augment, 1 of the 2 ms a batch that serving takes go into it. To load costs nothing to serve, or a part.
    job = replace(WORKER, serving=0.024, alone={"collate": 0.019, "augment": 0.009, "load": 0.018})
    costs = costs_of(job, noise=0)
    found = {name: costs.interval(name) for name in ("collate", "augment", "load")}
    assert {name: i.estimate for name, i in found.items()} == pytest.approx(
        {"collate": 0.003, "augment": 0.014, "load": 0.004}
    )
    assert bounds(found["load"]) == pytest.approx((0.003, 0.005))
    assert bounds(found["augment"]) == pytest.approx((0.013, 0.015))
    assert costs.add_to(Evidence()).serving_s_per_batch.estimate == pytest.approx(0.002)
    assert costs.add_to(Evidence()).resolution_s_per_batch == pytest.approx(0.001)


def test_what_receiving_a_batch_hides_may_belong_to_the_stage():
    # 64 workers: a batch comes every 0.35 ms, and no faster than the main process takes it.
    many = replace(WORKER, workers=0.00035, alone={"load": 0.0003}, evidence={"receiving_s_per_batch": 0.0003})
    cost = costs_of(many, noise=0).interval("load")
    assert cost.estimate == pytest.approx(0.00005)
    assert bounds(cost) == pytest.approx((0.00005, 0.00035))
    few = replace(WORKER, evidence={"receiving_s_per_batch": 0.0003})
    assert bounds(costs_of(few, noise=0).interval("load"))[1] == pytest.approx(0.004)


def test_no_time_is_known_better_than_it_repeats_from_process_to_process():
    # Guards: blocks that agree to a millionth promised as much of a clock in another process.
    costs = costs_of(WORKER, noise=0)
    for name in ("compute", "collate", "augment", "load"):
        cost = costs.interval(name)
        assert cost.high - cost.estimate == pytest.approx(0.003 * cost.estimate)
        assert cost.estimate - cost.low >= 0.003 * cost.estimate * (1 - 1e-9)
    assert costs.clearly_over("augment", "collate")


@pytest.mark.parametrize(("serving", "finding"), [(0.0221, "real"), (0.040, "undecided")])
def test_a_stage_that_costs_less_than_its_measuring_is_not_found(serving, finding):
    served = serving - WORKER.workers
    alone = {"collate": 0.019, "augment": 0.008 + served, "load": 0.018 + served}
    stages = stages_of(replace(WORKER, serving=serving, alone=alone), noise=0)
    assert stages["load"].finding == finding


def test_no_stage_is_named_where_serving_costs_more_than_each_of_them():
    # Guards: a job of 31 µs a batch was blamed on its collation, by the price of serving everything else.
    tiny = Job(
        coupled={"device": 1e-6, "before_collate": 45e-6, "raw": 60e-6},
        without={"collate": 45e-6, "load": 47e-6},
        workers=58e-6,
        serving=130e-6,
        alone={"collate": 46e-6, "load": 118e-6},
    )
    verdict = analyse(measure(tiny, noise=0.002)).verdict
    assert (verdict.state, verdict.bottleneck) == ("input_bound", None)
    assert "less per batch than measuring them takes" in verdict.sentence


def test_a_stage_over_what_measuring_costs_is_named_beside_others_that_are_not():
    job = replace(WORKER, serving=0.024, alone={"collate": 0.0215, "augment": 0.009, "load": 0.0225})
    costs = costs_of(job, noise=0.001)
    assert costs.unresolved_s("load") == pytest.approx(0.0005, abs=0.0003)
    assert costs.unresolved_s("augment") is None
    assert analyse(measure(job, noise=0.001)).verdict.bottleneck == "augment"


def test_two_costs_are_compared_by_their_difference_whose_common_part_cancels():
    # Each cost alone is uncertain by the 1 s that both leave in; which of them is larger is not.
    job = replace(WORKER, workers=1.030, alone={"augment": 1.016, "load": 1.018})
    costs = costs_of(job, noise=0.0, rounds=8)
    assert costs.clearly_over("augment", "load")
    noisy = costs_of(job, noise=0.01, rounds=8)
    assert not noisy.clearly_over("augment", "load")
    # What all arms of a round share is no error of a difference.
    assert costs_of(job, noise=0.0, drift=0.2, rounds=8).clearly_over("augment", "load")


def test_that_one_cost_is_clearly_larger_is_said_wrongly_as_seldom_as_promised():
    equal = replace(WORKER, alone={"augment": 0.013, "load": 0.013})
    wrong = sum(
        bool(costs_of(equal, noise=0.02, rounds=8, seed=seed).clearly_over("augment", "load")) for seed in range(400)
    )
    assert wrong / 400 <= 0.05


def test_costs_without_a_common_round_are_not_compared():
    costs = costs_of(WORKER, rounds=1)
    assert costs.clearly_over("augment", "load") is None


def test_no_gain_goes_beyond_what_the_cost_allows():
    # Without its 4 ms of loading, a loader that takes 22 ms is 1.22 times as fast at most; 1.5 was measured.
    job = replace(WORKER, without={**WORKER.without, "load": 0.0247 / 1.5})
    gain = stages_of(job, noise=0.001)["load"].gain_if_free
    assert gain.high < 1.25
    assert gain.low <= gain.estimate <= gain.high
    assert stages_of(WORKER, noise=0.001)["load"].gain_if_free.estimate == pytest.approx(0.0247 / 0.0228, rel=0.01)


def test_in_the_process_that_trains_the_whole_step_bounds_the_gain():
    job = replace(WORKER, without={**WORKER.without, "load": 0.0247 / 1.5}, pipeline={"num_workers": 0})
    gain = stages_of(job, noise=0.0001)["load"].gain_if_free
    assert gain.high == pytest.approx(1 / (1 - 0.004 / 0.0247), rel=0.01)


def test_what_does_not_add_up_is_told():
    together = costs_of(WORKER, noise=0).add_to(Evidence()).costs_together
    assert together.all_s_per_batch == pytest.approx(0.022)
    assert together.sum_s_per_batch.estimate == pytest.approx(0.021)
    assert together.rest_s_per_batch.estimate == pytest.approx(0.001)


@pytest.mark.parametrize(
    ("alone", "said"),
    [
        ({"collate": 0.021, "augment": 0.012, "load": 0.018}, "of it belongs to no single stage"),
        ({"collate": 0.015, "augment": 0.004, "load": 0.018}, "they share "),
    ],
)
def test_costs_that_do_not_add_up_are_told(alone, said):
    def told(job):
        return [w.message for w in analyse(measure(job, noise=0.001)).warnings if w.id == "costs-do-not-add-up"]

    assert not told(WORKER)
    (message,) = told(replace(WORKER, alone=alone))
    assert said in message


def test_costs_are_not_held_against_the_whole_where_a_stage_could_not_be_left_out():
    # Guards: "43.6 ms of it belongs to no single stage" beside "fetch, 43.9 ms of the 44.9 ms", which could not be
    # left out.
    alone = {"collate": 0.021}
    job = replace(WORKER, alone=alone, without={"collate": WORKER.without["collate"]})
    assert "costs-do-not-add-up" not in {w.id for w in analyse(measure(job, noise=0.001)).warnings}


@pytest.mark.parametrize(("step_s", "are_told"), [(0.010, True), (0.030, False)])
def test_the_rest_of_a_loader_that_takes_next_to_nothing_of_a_step_is_not_told(step_s, are_told):
    # Guards: a warning of 0.9 ms that is counted twice, in a job whose step with the copies of 38 MB takes 20 ms.
    job = Job(
        coupled={**dict.fromkeys(LADDER, 0.5 * step_s), "raw": step_s},
        drained={**dict.fromkeys(LADDER[2:], 0.0015), "raw": 0.0021},
        without=dict.fromkeys(("copy", "handoff", "collate", "augment", "load"), step_s),
        workers=0.0020,
        alone={"collate": 0.0012, "augment": 0.0005, "load": 0.0016},
    )
    told = [w for w in analyse(measure(job, noise=0.001)).warnings if w.id == "costs-do-not-add-up"]
    assert bool(told) == are_told


def differences(job, wall, **options):
    measurement = measure(job, **{"noise": 0.001, **options})
    spans = tuple(replace(span, wall_s_per_batch=wall.get(span.name)) for span in measurement.stages)
    return [w for w in analyse(replace(measurement, stages=spans)).warnings if w.id == "cost-differs-from-clock"]


def test_a_cost_that_is_not_what_the_clocks_show_is_told_with_both_numbers():
    assert not differences(WORKER, {"augment": 0.0145, "load": 0.0041})
    (told,) = differences(WORKER, {"augment": 0.0180, "load": 0.0041})
    assert "augment costs 14.0 ms" in told.message
    assert "18.0 ms" in told.message
    assert not differences(WORKER, {"augment": 0.0180}, noise=0.2)


def test_a_cost_of_microseconds_is_not_held_against_its_clock():
    # Guards: "fetch costs 0.07 ms and the clocks show 25 µs: close what else runs", at a step of 30 ms.
    assert not differences(replace(WORKER, alone={**WORKER.alone, "load": 0.0219}), {"load": 0.0009})


def test_the_clock_of_the_collation_holds_what_the_hand_off_writes():
    # 3 ms of collating, and up to the 1.2 ms that handing over an empty batch takes for writing it.
    assert not differences(WORKER, {"collate": 0.0042})
    assert differences(WORKER, {"collate": 0.0060})
    assert differences(WORKER, {"collate": 0.0010})


def test_reading_the_clocks_takes_its_time_too():
    # All clocks together show 24.2 ms of a loader that takes 22: so much of each may be the reading.
    assert not differences(WORKER, {"collate": 0.003, "augment": 0.015, "load": 0.0062})
    assert differences(WORKER, {"augment": 0.014, "load": 0.0062})


def test_a_result_of_an_earlier_version_keeps_its_costs_and_tells_no_more():
    costs = costs_of(AUGMENT_BOUND, noise=0)
    assert costs.interval("load").estimate == pytest.approx(0.0021)
    assert costs.add_to(Evidence()) == Evidence()


def recorded(size_cv, count=16):
    return replace(WORKER, evidence={"recorded_batches": {"count": count, "size_cv": size_cv}})


def test_recorded_batches_of_many_sizes_widen_costs_and_gains():
    # Guards: eight recorded batches of lengths of their own were taken for the mean of all, to the last per mille.
    alike, unlike = (stages_of(recorded(cv), noise=0)["augment"] for cv in (0.0, 0.4))
    cost, error = unlike.cost_s_per_batch, 2.131 * 0.4 / 4
    assert cost.estimate == pytest.approx(alike.cost_s_per_batch.estimate)
    assert bounds(cost) == pytest.approx((0.014 - error * 0.008, 0.014 + error * 0.008), rel=1e-3)
    assert alike.gain_if_free.low == pytest.approx(alike.gain_if_free.estimate)
    assert unlike.gain_if_free.low == pytest.approx(alike.gain_if_free.low * math.exp(-error), rel=1e-3)


def test_stages_are_compared_on_the_same_recorded_batches():
    # What these are more or less than all of them is so for each stage.
    named = [analyse(measure(recorded(cv), noise=0.001)).verdict.bottleneck for cv in (0.0, 0.4)]
    assert named == ["augment", "augment"]
    assert costs_of(recorded(2.0), noise=0.001).clearly_over("augment", "load")


def test_few_recorded_batches_of_many_sizes_leave_a_finite_interval():
    gain = stages_of(recorded(30.0, count=2), noise=0)["augment"].gain_if_free
    assert 0 < gain.low < gain.estimate
    assert stages_of(recorded(0.4, count=1), noise=0)["augment"].gain_if_free.low > gain.low


def test_the_step_may_be_shorter_by_what_the_loop_around_it_takes():
    plain, looped = (
        stages_of(replace(WORKER, evidence={"loop_s_per_batch": loop_s}), noise=0)["compute"].cost_s_per_batch
        for loop_s in (None, 4e-5)
    )
    assert looped.estimate == plain.estimate
    assert (plain.low - looped.low, looped.high - plain.high) == pytest.approx((4e-5, 4e-5))


@pytest.mark.parametrize("in_job", [0.5, 2.0])
def test_the_step_may_be_as_short_as_it_is_within_the_job(in_job):
    alone = stages_of(WORKER, noise=0)["compute"].cost_s_per_batch
    evidence = {"step_s_per_batch": in_job * alone.estimate, "loop_s_per_batch": 4e-5}
    found = stages_of(replace(WORKER, evidence=evidence), noise=0)["compute"].cost_s_per_batch
    assert found.low == pytest.approx(alone.low - max(4e-5, (1 - in_job) * alone.estimate))
    assert found.high == pytest.approx(alone.high + 4e-5)
