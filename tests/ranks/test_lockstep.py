"""How many steps the visits of all ranks have."""

from types import SimpleNamespace

import pytest

from bottleneck.loader import modes
from bottleneck.measure.batch_cache import BatchCache, CachedBatch
from bottleneck.measure.ladder import Arm
from bottleneck.measure.ranks.lockstep import LockstepBench

RAW, DEVICE = Arm(modes.ALL, "loader"), Arm(None, "device")


class Rank:
    """A rank whose steps take a hundredth of a second, in invented time; its loader costs nothing."""

    num_workers = queue_length = 2

    def __init__(self, **options):
        self.now_s, self.steps = 0.0, 0
        cache = BatchCache([CachedBatch("batch", 1)])
        self.group = SimpleNamespace(progress=0, leads=True, announce=lambda text: None, meet=lambda *_: None)
        self.bench = LockstepBench(
            loader=self, host=cache, device=cache, transfer=lambda batch: batch, step=self.step,
            synchronize=lambda: None, clock=lambda: self.now_s, group=self.group, sharing=None, most_workers=2,
            **options,
        )  # fmt: skip

    def step(self, batch):
        self.now_s += 0.01
        self.steps += 1

    def switch(self, mode):
        pass

    def rest(self):
        pass

    def arrived(self):
        return None

    def next_batch(self):
        return "batch", 1

    def warmed_up(self, arm):
        """Visit an arm, and return the steps before its block."""
        self.bench.begin_visit(arm, 0, 4)
        self.steps = 0
        self.bench.prepare(arm)
        steps = self.steps
        self.bench.measure(arm, 0, 4)
        return steps


@pytest.mark.parametrize("arm", [RAW, DEVICE], ids=["raw", "device"])
def test_an_accelerator_warms_up_for_as_long_with_its_loader_as_without(arm):
    rank = Rank(device_warm_up_s=0.3)
    rank.warmed_up(arm)
    assert rank.warmed_up(arm) == 1 + 30


def test_on_a_cpu_the_workers_take_a_turn_and_no_more():
    rank = Rank()
    rank.warmed_up(RAW)
    assert rank.warmed_up(RAW) == 1 + 2
    assert rank.warmed_up(DEVICE) == 1
