"""What a stage gains if it is free, in plain loops and as reported."""

import itertools
import math
from types import SimpleNamespace

import pytest
import torch

from benchmarks import gains, observer, paired
from benchmarks.gains import JOBS, Gain, check_gains, gains_table
from benchmarks.observer import Timed
from benchmarks.paired import Realised, enough_of, realise
from benchmarks.plain import plain_loader
from benchmarks.taken_out import MadeBatch, without
from benchmarks.work import Work
from bottleneck.measure.rounds.turns import StealTime
from bottleneck.results.records import Interval

STAGES = [(job, stage) for job in JOBS for stage in job.stages]


@pytest.fixture
def done(monkeypatch):
    seconds: list[float] = []
    monkeypatch.setattr(Work, "complete", lambda self, mark, times=1.0: seconds.append(self.seconds))
    return seconds


def one_batch(fields, done):
    """Return the work of one batch, and the batch; not the first one, at which a stage that is taken out may work."""
    batches = iter(plain_loader({**fields, "num_workers": 0, "prefetch_factor": None}))
    next(batches)
    done.clear()
    batch = next(batches)
    if "to_device" in fields:
        fields["to_device"](batch, "cpu")
    return sum(done), batch


@pytest.mark.parametrize(("job", "stage"), STAGES, ids=[f"{job.name}/{stage}" for job, stage in STAGES])
def test_a_stage_that_is_taken_out_costs_nothing_and_leaves_the_shape(job, stage, done):
    all_s, batch = one_batch(job.build(), done)
    left_s, same = one_batch(without(job.build(), stage), done)
    assert left_s < all_s - 1e-3
    assert [part.shape for part in batch] == [part.shape for part in same]
    assert [part.dtype for part in batch] == [part.dtype for part in same]


def test_a_batch_in_shared_memory_is_written_there_anew_each_time():
    # Guards: the same tensor travels twice as a mere file descriptor, so that the hand-off would be taken out as well.
    batch = torch.zeros(3).share_memory_(), torch.ones(2)
    shared, plain = MadeBatch(batch)()
    assert shared.is_shared()
    assert shared.data_ptr() != batch[0].data_ptr()
    assert plain is batch[1]


class Loop:
    """Blocks of a pace that drifts, and only with time."""

    drift = 1.0

    def __init__(self, fields):
        self.pace_s, self.blocks = fields["pace_s"], fields["blocks"]

    def run_block(self, batches):
        Loop.drift *= 1.02
        self.blocks.append(batches)
        return Timed(self.pace_s * Loop.drift, StealTime())


def test_pairs_take_turns_in_coming_first_so_that_drift_does_not_matter(monkeypatch):
    monkeypatch.setattr(paired, "PlainLoop", Loop)
    before, after = ({"pace_s": pace_s, "blocks": [], "num_workers": 8} for pace_s in (0.03, 0.02))
    found = realise(before, after, pairs=8, block_s=1.0)
    assert found.gain.estimate == pytest.approx(1.5, rel=1e-6)
    assert len(found.ratios) == 8
    assert min(before["blocks"][1:]) >= 4 * 16  # four queues
    assert all(batches % 8 == 0 for batches in before["blocks"] + after["blocks"])


def test_what_was_made_while_nobody_took_it_is_in_no_block(monkeypatch):
    """The queues hold 16 batches that are there at once; later ones take 25 ms, the step 20 ms."""
    now = [0.0]
    made = iter([0.0] * 16 + [0.025] * 10**4)
    ready = [0.0]

    def batches():
        for takes_s in made:
            ready[0] += takes_s
            now[0] = max(now[0], ready[0])
            yield [torch.zeros(1)]

    monkeypatch.setattr(observer, "plain_loader", lambda fields: batches())
    monkeypatch.setattr(
        observer, "StealTimeMeter", lambda: SimpleNamespace(begin=lambda: None, end=lambda processes: None)
    )
    monkeypatch.setattr(observer, "time", SimpleNamespace(perf_counter=lambda: now[0]))

    def step(batch):
        now[0] += 0.020

    loop = observer.PlainLoop({"train_step": step, "device": "cpu", "num_workers": 8})
    assert loop.run_block(64).seconds_per_batch == pytest.approx(0.025, rel=0.01)


def gain(truth, reported, **changes):
    return Gain("last_straw", "augment", Realised((truth, truth)), reported, **changes)


@pytest.mark.parametrize(("truth", "right"), [(1.20, True), (1.171, True), (1.169, False), (1.331, False)])
def test_the_truth_is_in_the_interval_widened_by_three_hundredths(truth, right):
    assert gain(truth, Interval(1.25, 1.20, 1.30)).right is right


def test_a_gain_that_is_missing_or_wrong_is_listed():
    good, missing = gain(1.25, Interval(1.25, 1.2, 1.3)), gain(1.25, None)
    wrong, failed = gain(1.0, Interval(1.25, 1.2, 1.3)), gain(1.25, None, failure="OSError: no")
    check = check_gains([good, missing, wrong, failed])
    assert not check.held
    assert check.measured == "1 of 4"
    assert check.off == (
        "last_straw/augment: not reported", "last_straw/augment: out by 0.20", "last_straw/augment: OSError: no",
    )  # fmt: skip
    assert check_gains([good]).held
    assert "**out by 0.20**" in gains_table([wrong])


def test_a_job_is_diagnosed_once_between_the_plain_loops_of_its_stages(monkeypatch):
    # Guards: plain loops after the diagnosis only, on a machine that had changed by then.
    calls, earlier_ones = [], []

    def realise(before, after, *, pairs, half_width=math.inf, earlier=()):
        calls.append("loops")
        earlier_ones.append(earlier)
        return Realised((*earlier, *[1.5] * pairs))

    monkeypatch.setattr(gains, "run_diagnosis", lambda fields, quick: (calls.append("diagnosis"), (None, 1.0, "no"))[1])
    monkeypatch.setattr(gains, "realise", realise)
    found = gains.measure_gains([JOBS[-1]])
    assert [one.stage for one in found] == ["load", "augment"]
    assert calls == ["loops", "loops", "diagnosis", "loops", "loops"]
    assert [len(earlier) for earlier in earlier_ones] == [0, 0, 4, 4]
    assert [len(one.realised.ratios) for one in found] == [8, 8]


def test_a_busy_machine_gets_more_pairs_until_the_gain_is_known():
    steady, shaky = itertools.repeat(1.5), itertools.cycle((1.2, 1.8))
    assert len(enough_of(steady, 8, 0.03).ratios) == 8
    assert len(enough_of(shaky, 8, 0.03).ratios) == 24
    assert len(enough_of(itertools.chain([1.0, 2.0], steady), 8, 0.2).ratios) > 8
    assert len(enough_of(shaky, 8, math.inf).ratios) == 8
