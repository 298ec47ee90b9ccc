"""The trial of more workers: the numbers tried, their turns with the unchanged job, and the blocks kept."""

from types import SimpleNamespace

import pytest
import torch

from bottleneck.loader.emulated import Work
from bottleneck.measure.caches import CachedBatch
from bottleneck.measure.ladder import Ladder
from bottleneck.measure.ledger import Ledger
from bottleneck.measure.passes import more_workers
from bottleneck.measure.passes.more_workers import Trial, Way, is_worth_trying, try_workers, ways_to_try, work_of
from bottleneck.measure.rounds.turns import StealTime, Visit
from bottleneck.results.evidence import LoaderFacts
from bottleneck.results.records import Block, Stage
from tests.support.clock import FakeClock

COMPUTES, WAITS = Work(0.02, 0.0), Work(0.001, 0.019)


@pytest.mark.parametrize(
    ("work", "step_s", "present", "cores", "shares", "ways"),
    [
        (COMPUTES, 0.001, Way(0, 2), 2, True, [Way(2, 2), Way(2, 1), Way(1, 1)]),
        (COMPUTES, 0.001, Way(1, 2), 2, True, [Way(2, 2), Way(2, 1)]),
        (COMPUTES, 0.001, Way(0, 2), 2, False, [Way(2, 2)]),  # the step waits, or has one thread
        (COMPUTES, 0.02, Way(0, 8), 8, True, [Way(2, 8), Way(2, 6), Way(1, 7)]),  # as many as keep up with the step
        (COMPUTES, 0.001, Way(0, 1), 1, False, []),
        (COMPUTES, 0.02, Way(2, 8), 8, True, []),
        (WAITS, 0.001, Way(0, 1), 1, False, [Way(8, 1)]),
        (WAITS, 0.005, Way(1, 2), 2, True, [Way(5, 2), Way(5, 1), Way(2, 1)]),
    ],
)
def test_as_many_are_tried_as_the_step_needs_and_the_cores_allow(work, step_s, present, cores, shares, ways):
    assert ways_to_try(work, step_s, present, cores, shares=shares) == ways


def ledger_of(wall_s, cpu_s, raw_s=0.022, device_s=0.002, **facts):
    ledger = Ledger({}, {})
    times = {Ladder.raw: raw_s, Ladder.device: device_s}
    ledger.seconds_per_batch = times.get
    clocks = {"wall_s_per_batch": wall_s, "cpu_s_per_batch": cpu_s}
    unknown = dict.fromkeys(("cost_s_per_batch", "exposed_s_per_batch", "exposed_share", "gain_if_free"))
    load = Stage(name="load", inner=None, outer="raw", finding="undecided", **unknown, **clocks)
    ledger.ladder = SimpleNamespace(spans=(load,))
    ledger.note(**facts)
    return ledger


def test_without_workers_all_but_the_step_is_loading_and_its_clocks_say_what_of_it_waits():
    assert work_of(ledger_of(0.025, 0.005), 0) == Work(pytest.approx(0.004), pytest.approx(0.016))
    assert work_of(ledger_of(0.025, 0.005), 1) == Work(0.005, 0.02)
    crowded = work_of(ledger_of(0.025, 0.02, core_wait_per_cpu_s=0.25), 1)
    assert crowded == Work(0.02, 0.0)  # it stood ready for a core, and waited for nothing else
    assert work_of(ledger_of(None, None), 0) is None


@pytest.mark.parametrize(
    ("workers", "on_cpu", "facts", "raw_s", "worth"),
    [
        (0, True, {}, 0.022, True),
        (1, True, {}, 0.022, True),
        (2, True, {}, 0.022, False),
        (0, False, {}, 0.022, False),  # the step takes no core from them
        (0, True, {"loader": LoaderFacts(own_workers=2)}, 0.022, False),
        (0, True, {}, 0.00201, False),
    ],
)
def test_it_is_worth_its_time_where_loading_takes_a_part_of_a_job_on_the_cpu(workers, on_cpu, facts, raw_s, worth):
    bench = SimpleNamespace(loader=SimpleNamespace(num_workers=workers), loop=SimpleNamespace(has_queue=False))
    assert is_worth_trying(bench, ledger_of(0.02, 0.02, raw_s=raw_s, **facts), on_cpu=on_cpu) is worth


class Feed:
    """Workers that were asked for, in invented time."""

    def __init__(self, log, workers):
        self.log, self.workers = log, workers

    def next_batch(self):
        return self.workers, 16

    def __getattr__(self, name):
        return lambda: self.log.append((name, self.workers))


class World:
    """A job of 20 ms a batch, and what it takes with workers, by their number and the threads beside them."""

    def __init__(self, monkeypatch, seconds):
        self.clock, self.log, self.seconds = FakeClock(), [], seconds
        monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
        monkeypatch.setattr(torch, "set_num_threads", self._set)
        monkeypatch.setattr(more_workers, "visit", self._visit)
        self.threads = 2
        loader = SimpleNamespace(num_workers=0, rest=lambda: None)
        host = SimpleNamespace(batches=[CachedBatch(torch.ones(2), 16)])
        self.bench = SimpleNamespace(
            loader=loader, clock=self.clock, step=self._step, transfer=lambda batch: batch, synchronize=lambda: None,
            host=host, prepare=lambda arm: None, device=SimpleNamespace(serve=lambda: host.batches[0]),
        )  # fmt: skip

    def _set(self, threads):
        self.threads = threads

    def _step(self, batch):
        self.clock.advance(self.seconds.get((batch, self.threads), 0.02) if isinstance(batch, int) else 0.002)

    def _visit(self, bench, arm, round_, batches, counters):
        self.clock.advance(0.02 * batches)
        return Visit(Block(round_, 16 * batches, 0.02 * batches, batches), 0.0, StealTime())

    def open(self, workers):
        self.log.append(("open", workers))
        return Feed(self.log, workers)


def test_ways_take_turns_with_the_job_as_it_is_and_nothing_stays(monkeypatch):
    world = World(monkeypatch, {(2, 2): 0.016, (2, 1): 0.011, (1, 1): 0.03})
    trial = Trial(world.bench, 0.02, COMPUTES, world.open)
    trial.run([Way(2, 2), Way(2, 1), Way(1, 1)])
    paces = {way: [block.seconds / block.batches for block in blocks] for way, blocks in trial.kept.blocks.items()}
    assert {way: found[0] for way, found in paces.items()} == pytest.approx(
        {Way(0, 0): 0.02, Way(2, 2): 0.016, Way(2, 1): 0.011, Way(1, 1): 0.03}
    )
    assert len(paces[Way(0, 0)]) == len(paces[Way(2, 2)]) == len(paces[Way(2, 1)]) >= 3
    assert len(paces[Way(1, 1)]) == 1  # by far slower: once is enough
    assert world.threads == 2
    assert world.log[:2] == [("open", 2), ("open", 1)]
    assert sorted(world.log[-2:]) == [("close", 1), ("close", 2)]
    assert world.clock() < 2 * more_workers.MAX_TRIAL_S


def test_a_job_that_is_too_slow_for_a_trial_is_not_tried(monkeypatch):
    # Guards: one round of a step of 0.4 s took 14 s, and told nothing.
    world = World(monkeypatch, {(2, 2): 1.5})
    trial = Trial(world.bench, 2.0, Work(1.9, 0.0), world.open)
    trial.run([Way(2, 2)])
    assert (trial.kept.blocks, world.log, world.clock()) == ({}, [], 0)


def test_of_a_slow_job_the_first_ways_are_tried_that_fit(monkeypatch):
    world = World(monkeypatch, {(2, 2): 0.1, (2, 1): 0.12, (1, 1): 0.2})
    trial = Trial(world.bench, 0.25, Work(0.2, 0.0), world.open)
    trial.run([Way(2, 2), Way(2, 1), Way(1, 1)])
    assert set(trial.kept.blocks) == {Way(0, 0), Way(2, 2), Way(2, 1)}


def test_a_job_that_is_far_slower_on_workers_than_expected_is_tried_once(monkeypatch):
    world = World(monkeypatch, {(2, 2): 1.5})
    trial = Trial(world.bench, 0.02, COMPUTES, world.open)
    trial.run([Way(2, 2)])
    assert [len(blocks) for blocks in trial.kept.blocks.values()] == [1, 1]


def test_what_was_measured_often_enough_is_kept(monkeypatch):
    world = World(monkeypatch, {(2, 2): 0.016, (2, 1): 0.011, (1, 1): 0.03})
    monkeypatch.setattr(more_workers, "EmulatedLoader", lambda batches, work, workers: world.open(workers))
    ledger = ledger_of(0.02, 0.02)
    monkeypatch.setattr(more_workers.time, "process_time", lambda: 2 * world.clock())  # two cores are busy
    try_workers(world.bench, ledger, cores=2)
    trial = ledger.evidence.workers_trial
    assert trial.threads == 2
    assert [(way.num_workers, way.threads) for way in trial.ways] == [(2, 2), (2, 1)]
    assert len(trial.as_it_is) == len(trial.ways[0].blocks) >= 3
