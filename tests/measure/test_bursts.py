"""A queue of samples that refills at once: blocks are planned for its refills, not for what lies ready."""

import pytest
from torch.utils.data import Dataset

from bottleneck.measure.options import MeasureOptions
from bottleneck.measure.rounds.schedule import EVEN, find_bursts
from tests.support.clock import FakeClock
from tests.support.sessions import UNDECIDED, blocks, pipeline_of, run, warnings_of

BATCH, STEP_S = 4, 0.016


class Patches(Dataset):
    """Samples from a queue that is filled from volumes when it is empty."""

    def __init__(self, clock, batches, refill_s):
        self.clock, self.most, self.refill_s, self.left = clock, batches * BATCH, refill_s, 0

    def __len__(self):
        return 10_000

    def __getitem__(self, index):
        if not self.left:
            self.clock.advance(self.refill_s)
            self.left = self.most
        self.left -= 1
        return float(index)


def diagnose(batches, refill_s, budget_s=None):
    clock = FakeClock(50.0, per_reading_s=1e-4)
    dataset = Patches(clock, batches, refill_s)
    job = pipeline_of(dataset, train_step=clock.step(STEP_S), num_workers=0, batch_size=BATCH)
    made = run(job, MeasureOptions(budget_s=budget_s), judge=lambda _: UNDECIDED, clock=clock)
    return made, made.measurement.cost.seconds


def efficiency(found):
    per_batch = [
        sum(b.seconds for b in each) / sum(b.batches for b in each) for each in (found["device"], found["raw"])
    ]
    return per_batch[0] / per_batch[1]


@pytest.mark.parametrize(("batches", "refill_s"), [(16, 0.5), (40, 0.2), (50, 0.1), (5, 0.03)])
def test_a_queue_that_refills_is_measured_over_its_refills_within_a_minute(batches, refill_s):
    # Guards: the first batch lies ready, and a block of thousands was planned by it.
    made, took_s = diagnose(batches, refill_s)
    found = blocks(made)
    assert took_s < 60.0
    assert len(found["raw"]) >= 6
    assert efficiency(found) == pytest.approx(STEP_S / (STEP_S + refill_s / batches), rel=0.1)
    assert "bursts" not in warnings_of(made)
    settled = [block.seconds / block.batches for block in found["raw"][-6:]]
    assert max(settled) < 1.6 * min(settled)  # each holds one refill of three more than others at most


@pytest.mark.parametrize(("batches", "refill_s"), [(90, 3.0), (200, 1.5), (100, 20.0)])
def test_a_queue_whose_refills_are_longer_than_blocks_says_so(batches, refill_s):
    made, took_s = diagnose(batches, refill_s, budget_s=50.0)
    assert took_s < 50.0 + refill_s
    assert f"waits {refill_s:.2g} s for one" in warnings_of(made)["bursts"]


def test_batches_that_come_evenly_are_no_bursts():
    # Guards: blocks that grow without need cost all other experiments their time.
    turn = [0.1, 0.0, 0.0, 0.0]
    assert find_bursts(30 * [0.02], 0.03, 0) == EVEN
    assert find_bursts(30 * turn, 0.03, 4) == EVEN
    assert find_bursts(99 * [0.0] + [0.1], 0.03, 0) == EVEN  # a hiccup that costs 3 %
    assert find_bursts([], 0.03, 0) == EVEN


def test_a_burst_is_known_by_its_length_and_its_wait():
    found = find_bursts(10 * ([0.5] + 15 * [0.0]), 0.047, 0)
    assert (found.batches, found.wait_s, found.seen) == pytest.approx((16, 0.5, 10))
    assert found.every_s == pytest.approx(16 * 0.047)


def test_blocks_do_not_grow_for_a_single_hiccup():
    once = find_bursts([0.0, 2.0, *30 * [0.0]], 0.02, 0)
    assert once.seen == pytest.approx(1)
    assert once.wanted_s == 0.0
