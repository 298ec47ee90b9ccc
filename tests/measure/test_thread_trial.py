"""The trial of one thread in each worker: when it is worth its time, and what it takes and leaves."""

from types import SimpleNamespace

import pytest

from bottleneck.loader import modes
from bottleneck.measure.ledger import Ledger
from bottleneck.measure.passes import one_thread
from bottleneck.measure.passes.one_thread import is_worth_a_trial, try_one_thread
from bottleneck.measure.rounds.turns import StealTime, Visit
from bottleneck.results.evidence import LoaderFacts
from bottleneck.results.records import Block
from tests.support.clock import FakeClock


def bench_and_ledger(step_s=0.02, threads=8, workers=2):
    """Return bench and ledger of a job whose step takes so long."""
    rests = []
    loader = SimpleNamespace(num_workers=workers, queue_length=2 * workers, rest=lambda: rests.append(True))
    ledger = Ledger({}, {})
    ledger.seconds_per_batch = lambda _: step_s
    ledger.note(loader=LoaderFacts(library_threads=threads))
    return SimpleNamespace(loader=loader, clock=FakeClock(), rests=rests), ledger


@pytest.mark.parametrize(
    ("changes", "cores", "worth"),
    [
        ({}, 4, True),
        ({"threads": 2}, 4, False),  # as many as cores
        ({"threads": 1, "workers": 16}, 4, False),  # more workers than cores are another matter
        ({"threads": None}, 4, False),
        ({"workers": 0}, 4, False),
        ({"step_s": 2.0}, 4, False),  # a few pairs would take far longer than a trial may
        ({"step_s": None}, 4, False),
    ],
)
def test_it_is_worth_its_time_where_threads_are_more_than_cores(changes, cores, worth):
    assert is_worth_a_trial(*bench_and_ledger(**changes), cores) is worth


@pytest.mark.parametrize(("visit_s", "rounds"), [(0.1, 8), (0.7, 3), (3.0, 3)])
def test_both_take_turns_for_some_seconds(monkeypatch, visit_s, rounds):
    bench, ledger = bench_and_ledger()

    def visit(bench, arm, round_, batches, counters):
        bench.clock.advance(visit_s)
        return Visit(Block(round_, 8, 0.3 if arm.mode & modes.ONE_THREAD else 0.4, batches), 0.0, StealTime())

    monkeypatch.setattr(one_thread, "visit", visit)
    try_one_thread(bench, ledger)

    trial = ledger.evidence.thread_trial
    for blocks, seconds in ((trial.as_it_is, 0.4), (trial.one_thread, 0.3)):
        assert [block.round for block in blocks] == list(range(rounds))
        assert {block.seconds for block in blocks} == {seconds}
    assert bench.rests
