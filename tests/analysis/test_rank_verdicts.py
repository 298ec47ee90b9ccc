"""The verdict on a job of many ranks: the rank that holds up the others, named only if it is certain."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bottleneck.analysis.analyse import analyse
from bottleneck.analysis.ranks import extremes
from bottleneck.results.evidence import RanksTogether, Straggler, Sync
from bottleneck.results.json import from_json, to_json
from bottleneck.results.records import Interval, Rank, RankExperiment
from tests.analysis.rule_cases.many_ranks import SURE, UNSURE, of_ranks, sharing, straggling
from tests.analysis.simulated import AUGMENT_BOUND
from tests.support.rank_results import make_rank, make_ranks, make_together


def test_a_straggler_is_named_with_its_place_and_its_gain_before_all_else():
    verdict = analyse(straggling(SURE)).verdict
    assert (verdict.straggler, verdict.state, verdict.bottleneck) == (3, "input_bound", "load")
    assert verdict.sentence.startswith(
        "Rank 3 on node-0 (cuda:3) slows down all 4 ranks with its load. Without that: 1.30x (1.20–1.40) the throughput"
    )


@pytest.mark.parametrize("gain", [UNSURE, Interval(1.06, 1.05, 1.07), None])
def test_a_straggler_that_is_not_clearly_worth_a_twentieth_is_not_named(gain):
    verdict = analyse(straggling(gain)).verdict
    assert verdict.straggler is None
    assert "Rank" not in verdict.sentence


def test_the_stage_in_which_one_rank_is_slow_is_the_bottleneck_of_the_job():
    verdict = analyse(straggling(SURE, "augment")).verdict
    assert (verdict.bottleneck, verdict.contributors) == ("augment", ("load",))


def test_a_slow_device_of_one_rank_is_no_bottleneck_of_an_input_bound_job():
    verdict = analyse(straggling(SURE, "compute")).verdict
    assert (verdict.straggler, verdict.bottleneck) == (3, "load")
    assert "slows down all 4 ranks with its train step." in verdict.sentence


def test_sharing_gradients_is_the_bottleneck_where_it_clearly_gains_more_than_free_input():
    verdict = analyse(sharing(SURE)).verdict
    assert (verdict.state, verdict.bottleneck, verdict.contributors) == ("device_bound", "sync", ())
    assert verdict.sentence.startswith(
        "Sharing gradients takes 8.00 ms of each step. Without it: 1.30x (1.20–1.40) the throughput. Bottleneck: sync."
    )


def test_sharing_gradients_is_told_but_not_the_bottleneck_where_the_input_costs_more():
    sync = Sync(cost_s_per_batch=0.004, gain_if_free=SURE)
    result = analyse(of_ranks(AUGMENT_BOUND, sync=sync))
    assert result.verdict.bottleneck == "augment"
    assert result.verdict.sentence.endswith(
        "Sharing gradients takes 4.00 ms of each step. Without it: 1.30x (1.20–1.40) the throughput."
    )
    assert ("sync",) in {found.stages for found in result.what_if}
    unknown = analyse(of_ranks(AUGMENT_BOUND, sync=Sync(gain_if_free=SURE)))
    assert unknown.verdict.sentence.endswith("Without sharing gradients: 1.30x (1.20–1.40) the throughput.")


@pytest.mark.parametrize("gain", [UNSURE, None])
def test_sharing_gradients_that_does_not_clearly_gain_is_not_named(gain):
    result = analyse(sharing(gain))
    assert result.verdict.bottleneck == "compute"
    assert "gradients" not in result.verdict.sentence


def test_what_the_others_gain_by_no_longer_waiting_for_a_straggler_is_not_blamed_on_sharing_gradients():
    held = Straggler(rank=1, host="a", device="cuda:1", stage="compute", gain=SURE)
    verdict = analyse(sharing(SURE, straggler=held)).verdict
    assert (verdict.straggler, verdict.bottleneck) == (1, "compute")
    assert "gradients" not in verdict.sentence


# --- single ranks -----------------------------------------------------------------------------------------


def test_the_slowest_is_the_straggler_whatever_its_loader_takes():
    found = extremes(make_ranks(16), make_together(16))
    assert [rank.rank for rank in found] == [5, 2, 14]
    device = Straggler(rank=9, host="node-1", device="cuda:1", stage="compute", gain=SURE)
    assert extremes(make_ranks(16), make_together(16, straggler=device))[0].rank == 9


@pytest.mark.parametrize(("world", "kept"), [(0, 0), (1, 1), (2, 2), (3, 3), (1024, 3)])
def test_there_are_as_many_extremes_as_ranks_and_no_more_than_three(world, kept):
    ranks = tuple(make_rank(number) for number in range(world))
    found = extremes(ranks, RanksTogether())
    assert len({rank.rank for rank in found}) == len(found) == kept


def test_a_rank_of_which_nothing_was_measured_is_the_fastest():
    ranks = (Rank(0, "a", "cpu"), Rank(1, "a", "cpu", experiments=(RankExperiment("raw", None, 0.1),)))
    assert [rank.rank for rank in extremes(ranks, RanksTogether())] == [1, 0]


def test_blocks_are_kept_of_the_extremes_and_a_result_of_a_thousand_ranks_stays_small():
    ranks = tuple(make_rank(number) for number in range(1024))
    slow = tuple(replace(rank, experiments=make_rank(7, 3.0).experiments) if rank.rank == 7 else rank for rank in ranks)
    result = analyse(replace(straggling(SURE), ranks=slow))
    text = to_json(result)
    assert len(result.ranks) == 1024
    assert sum(any(found.coupled for found in rank.experiments) for rank in result.ranks) == 3
    assert len(text) < 3_000_000
    assert from_json(text) == result
