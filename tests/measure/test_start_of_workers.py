"""The start of workers: told from their first batch, and divided by single processes that are started."""

import multiprocessing
from types import SimpleNamespace

import pytest
from torch.utils.data import DataLoader

from bottleneck.measure import starting as module
from bottleneck.measure.passes.bare_start import start_s
from bottleneck.measure.starting import is_worth_a_trial, with_first_batch, with_trial
from bottleneck.results.starting import Starting, StartingPart
from tests.support.clock import FakeClock


def starting(**parts):
    made = tuple(StartingPart(name=name.replace("_", " "), seconds=seconds) for name, seconds in parts.items())
    return Starting(seconds=sum(parts.values()), parts=made)


def parts_of(found):
    return {part.name: pytest.approx(part.seconds) for part in found.parts}


def loader(method, **options):
    return DataLoader([1, 2], num_workers=2, multiprocessing_context=method, **options)


def test_the_first_batch_is_no_part_of_the_start_of_workers():
    found = with_first_batch(starting(imports=2.0, starting_workers=5.0, first_step=1.0), 4.0, worker_s=1.5)
    assert list(parts_of(found)) == ["imports", "starting workers", "first batch", "first step"]
    assert parts_of(found) == {"imports": 2.0, "starting workers": 3.5, "first batch": 1.5, "first step": 1.0}
    assert found.seconds == 8.0


def test_without_workers_there_is_only_a_first_batch():
    assert parts_of(with_first_batch(starting(starting_workers=0.5), 0.6, worker_s=0.6)) == {"first batch": 0.5}


def test_of_a_described_job_the_start_of_its_workers_is_known():
    found = with_first_batch(None, 4.0, worker_s=1.0)
    assert (found.seconds, parts_of(found)) == (4.0, {"starting workers": 3.0, "first batch": 1.0})


@pytest.mark.parametrize(
    ("method", "seconds", "worth"), [("spawn", 2.0, True), ("spawn", 0.5, False), ("fork", 9, False)]
)
def test_only_workers_that_start_slowly_and_are_not_forked_are_looked_at(method, seconds, worth):
    assert is_worth_a_trial(starting(starting_workers=seconds), loader(method)) is worth
    assert not is_worth_a_trial(starting(starting_workers=seconds), DataLoader([1, 2]))


@pytest.mark.parametrize(
    ("tried", "parts"),
    [
        ([1.0, 4.0], {"imports again in workers": 2.0, "sending the dataset to workers": 6.0}),
        ([1.0, 1.0], {"imports again in workers": 8.0}),
        ([1.0, 0.9], {"imports again in workers": 8.0}),
        ([1.0, None], {"starting workers": 8.0}),
        ([None], {"starting workers": 8.0}),
    ],
)
def test_the_start_of_workers_is_divided_like_that_of_a_single_one(monkeypatch, tried, parts):
    given = iter(tried)
    monkeypatch.setattr(module, "start_s", lambda *_: next(given))
    found = with_trial(starting(starting_workers=8.0), loader("spawn"), FakeClock(), 60.0)
    assert parts_of(found) == parts
    assert [found.bare_worker_s, found.full_worker_s][: len(tried)] == tried


class Context:
    """Gives a process that answers after a time, or not."""

    def __init__(self, clock, takes_s):
        self.clock, self.takes_s, self.killed = clock, takes_s, False

    def Pipe(self, duplex):
        return self, SimpleNamespace(close=lambda: None)

    def Process(self, target, args, daemon):
        return self

    def start(self):
        if self.takes_s is None:
            raise TypeError("cannot pickle")

    def poll(self, limit_s):
        self.clock.advance(min(limit_s, self.takes_s))
        return self.takes_s <= limit_s

    def recv_bytes(self):
        return b"1"

    def is_alive(self):
        return self.takes_s is not None and self.takes_s > 5.0 and not self.killed

    def kill(self):
        self.killed = True

    def join(self, timeout=None):
        pass

    def close(self):
        pass


@pytest.mark.parametrize(("takes_s", "found"), [(2.0, 2.0), (9.0, None), (None, None)])
def test_a_process_that_does_not_start_in_time_or_at_all_says_nothing(takes_s, found):
    clock = FakeClock()
    context = Context(clock, takes_s)
    assert start_s(context, clock, 5.0, [1, 2]) == found
    assert context.killed is (takes_s == 9.0)


@pytest.mark.integration
def test_a_real_process_starts_and_leaves_nothing_behind():
    clock = FakeClock(per_reading_s=1.0)
    assert start_s(multiprocessing.get_context("spawn"), clock, 30.0, [1, 2]) == 1.0
    assert multiprocessing.active_children() == []
