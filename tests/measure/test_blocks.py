"""A block is timed from edge to edge, and nothing but the job runs inside it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bottleneck.loader import modes
from bottleneck.measure.bench import Bench, block_batches, receiving_s_per_batch
from bottleneck.measure.caches import BatchCache, CachedBatch
from bottleneck.measure.ladder import Arm
from bottleneck.measure.options import Loop, MeasureOptions
from tests.support.sessions import PRECISE, blocks, invented_time, pipeline_of, run, warnings_of

RAW = Arm(modes.ALL, "loader")
DRAINED = Arm(modes.ALL, "loader", coupled=False)
DEVICE, HOST = Arm(None, "device"), Arm(None, "host")
PREPARED = Arm(modes.ALL, "loader", preparation="files dropped")
WITHOUT_COPY = Arm(modes.ALL, "device")
WITHOUT_HANDOFF = Arm(modes.ALL & ~modes.HANDOFF, "host")


class World:
    """An invented clock, a loader, a copy and a step that take time by it, and a list of what happened."""

    load_s, copy_s, step_s = 0.5, 0.125, 0.25

    def __init__(self, workers=2, **options):
        self.now_s = 100.0
        self.log = []
        self.num_workers, self.queue_length = workers, 2 * workers
        host = BatchCache([CachedBatch("host batch", 3)])
        device = BatchCache([CachedBatch("device batch", 3)])
        self.bench = Bench(
            loader=self, host=host, device=device, transfer=self.transfer, step=self.step,
            synchronize=lambda: self.log.append("synchronize"), clock=lambda: self.now_s, **options,
        )  # fmt: skip

    def spend(self, what, seconds):
        self.log.append(what)
        self.now_s += seconds

    # --- as a loader ---

    def next_batch(self):
        self.spend("next", self.load_s)
        return "real batch", 4

    def switch(self, mode):
        self.spend(f"switch {mode}", 1.0)

    def rest(self):
        self.spend("rest", 1.0)

    def arrived(self):
        return None  # as where it cannot be seen

    def is_ahead(self):
        return False

    # --- as a job ---

    def transfer(self, batch):
        self.spend(f"copy {batch}", self.copy_s)
        return f"moved {batch}"

    def step(self, batch):
        self.spend(f"step {batch}", self.step_s)


ONCE = {
    RAW: ["next", "copy real batch", "step moved real batch"],
    DRAINED: ["next"],
    DEVICE: ["step device batch"],
    HOST: ["copy host batch", "step moved host batch"],
    WITHOUT_COPY: ["next", "step device batch"],
    WITHOUT_HANDOFF: ["next", "copy host batch", "step moved host batch"],
}


@pytest.mark.parametrize("arm", ONCE, ids=str)
def test_what_each_arm_does_for_a_batch(arm):
    world = World()
    world.bench.measure(arm, 0, 4)
    assert [entry for entry in world.log if entry != "synchronize"] == ONCE[arm] * 4


@pytest.mark.parametrize("arm", ONCE, ids=str)
def test_the_device_is_waited_for_at_the_edges_only(arm):
    # Guards: synchronising every step destroys the overlap that is to be measured.
    world = World()
    world.bench.measure(arm, 0, 4)
    assert world.log[0] == world.log[-1] == "synchronize"
    assert world.log.count("synchronize") == 2


def test_a_block_holds_its_batches_samples_and_seconds():
    world = World()
    block = world.bench.measure(RAW, 7, 4)
    assert (block.round, block.batches, block.samples) == (7, 4, 16)
    assert block.seconds == pytest.approx(4 * 0.875)
    assert block.first_half_seconds == pytest.approx(2 * 0.875)
    assert world.bench.measure(DEVICE, 0, 2).samples == 6
    assert world.bench.measure(WITHOUT_HANDOFF, 0, 2).samples == 8  # of the requests, not of what stands in
    assert (world.bench.batches, world.bench.samples) == (8, 30)


def test_a_block_holds_whole_updates_of_the_weights():
    # Guards: a loop that takes the batches of an update all at once, and then trains on one after another.
    world = World(loop=Loop(batches_per_update=4))
    assert [world.bench.measure(arm, 0, 6).batches for arm in (DEVICE, RAW, DRAINED)] == [8, 8, 6]


def test_halves_are_told_only_where_both_end_between_bursts():
    # Guards: workers deliver in bursts, and half a block may end inside one.
    assert World(workers=2).bench.measure(RAW, 0, 4).first_half_seconds is not None
    assert World(workers=4).bench.measure(RAW, 0, 4).first_half_seconds is None
    assert World(workers=1).bench.measure(RAW, 0, 3).first_half_seconds is None
    assert World(workers=0).bench.measure(RAW, 0, 2).first_half_seconds is not None
    assert World(split_blocks=False).bench.measure(RAW, 0, 4).first_half_seconds is None


def test_preparing_switches_and_runs_until_steady_and_none_of_it_is_counted():
    # Guards: batches of the experiment before, +22 % in a short block.
    world = World(workers=3)
    world.step_s = world.load_s = world.copy_s = 0.01
    world.bench.prepare(RAW)
    assert world.log[0] == f"switch {modes.ALL}"
    assert world.log.count("next") == 1 + 2 * 3  # a queue that cannot be looked into: two turns
    assert world.log[-1] == "synchronize"
    assert world.bench.batches == 0
    assert world.bench.waits_s == {}


def test_an_accelerator_that_was_idle_runs_before_it_is_timed():
    # Guards: one step after an idle phase, at clocks that have not settled.
    world = World(device_warm_up_s=1.0)
    world.bench.prepare(DEVICE)
    assert world.log.count("step device batch") == 4


# --- the beginning of a block ------------------------------------------------------------------------------


class Supply:
    """A loader whose workers make a batch every `period_s` without a break, whatever the job does."""

    period_s, num_workers, queue_length = 0.010, 1, 2

    def __init__(self):
        self.now_s = self.made_s = 0.0
        nothing = BatchCache([CachedBatch("batch", 4)])
        self.bench = Bench(
            loader=self, host=nothing, device=nothing, transfer=lambda batch: batch, step=self.step,
            synchronize=lambda: None, clock=lambda: self.now_s,
        )  # fmt: skip

    def switch(self, mode):
        self.made_s = self.now_s

    def arrived(self):
        return None

    def next_batch(self):
        self.made_s += self.period_s
        self.now_s = max(self.now_s, self.made_s)
        return "batch", 4

    def step(self, batch):
        self.now_s += 0.002


@pytest.mark.parametrize("arm", [RAW, DRAINED], ids=["coupled", "drained"])
def test_what_is_done_before_a_block_gives_the_workers_no_start(arm):
    # Guards: a millisecond of opening counters, in which workers make a part of the block's first batch.
    supply = Supply()
    supply.bench.prepare(arm)
    supply.now_s += 0.007
    assert supply.bench.settle(arm) == 4
    assert supply.bench.measure(arm, 0, 3).seconds == pytest.approx(3 * supply.period_s)
    assert supply.bench.batches == 3
    assert len(supply.bench.waits_s[arm]) == 3


def test_a_block_settles_only_where_workers_run_and_batches_are_quick_and_not_scarce():
    world = World()
    world.step_s = world.load_s = world.copy_s = 0.001
    for arm, batches in ((RAW, 1), (DRAINED, 1), (DEVICE, 0), (PREPARED, 0)):
        world.bench.prepare(arm)
        world.log.clear()
        world.bench.settle(arm)
        assert world.log.count("next") == batches
    slow = World()
    slow.bench.prepare(DRAINED)
    slow.log.clear()
    assert slow.bench.settle(DRAINED) == 0
    assert slow.log == []


# --- block lengths -----------------------------------------------------------------------------------------


@given(st.floats(1e-6, 5.0), st.floats(0.0, 10.0), st.integers(0, 64))
def test_a_block_of_the_loader_alone_is_a_multiple_of_the_number_of_workers(seconds, target_s, workers):
    # Guards: workers deliver in bursts, and a block edge falls inside a burst.
    batches = block_batches(DRAINED, seconds, target_s, workers)
    assert batches >= 1
    assert batches % max(1, workers) == 0
    assert batches * seconds >= min(target_s, seconds)
    assert (batches - max(1, workers) - 1) * seconds <= max(target_s, 2 * seconds, 0.2)


def test_block_lengths():
    assert block_batches(DRAINED, 0.01, 0.2, 0) == 20
    assert block_batches(DRAINED, 0.01, 0.2, 8) == 24
    assert block_batches(DRAINED, 2.0, 0.2, 4) == 4
    assert block_batches(RAW, 0.01, 0.2, 8) == 20  # the level of the queue says when it ends
    assert block_batches(RAW, 2.0, 0.2, 0) == 1
    assert block_batches(RAW, 2.0, 0.2, 16) == 4
    assert block_batches(RAW, 0.5, 0.2, 1) == 2  # one batch says little
    assert block_batches(RAW, 0.02, 0.0, 8) == 8  # nor do two quick ones
    assert block_batches(DEVICE, 0.01, 0.2, 8) == 20  # no workers, no bursts
    assert block_batches(DEVICE, 0.5, 0.1, 8) == 2
    assert block_batches(DEVICE, 1.5, 0.1, 8) == 1
    assert block_batches(RAW, 0.0, 0.1, 2) < 110_000  # never without end


@pytest.mark.parametrize(("on_cpu", "has_queue"), [(True, False), (False, False), (True, True)])
def test_what_the_step_takes_within_the_job_is_known_where_it_is_waited_for(on_cpu, has_queue):
    world = World(split_blocks=on_cpu)
    world.bench.loop.has_queue = has_queue
    world.bench.measure(DEVICE, 0, 4)
    assert world.bench.step_s_per_batch is None
    world.bench.measure(RAW, 0, 2)
    assert world.bench.step_s_per_batch == (pytest.approx(world.step_s) if on_cpu and not has_queue else None)
    assert world.bench.work_s_per_batch == (
        pytest.approx(world.copy_s + world.step_s) if on_cpu and not has_queue else None
    )


# --- how quickly batches in which there is nothing arrive --------------------------------------------------


class Loader:
    """Takes a millisecond of an invented clock for a batch; its first ones come late."""

    num_workers, queue_length, can_skip_batches = 2, 4, True

    def __init__(self):
        self.now_s, self.mode, self.taken = 0.0, None, 0

    def switch(self, mode):
        self.mode = mode

    def next_batch(self):
        assert self.mode == modes.STOP
        self.taken += 1
        self.now_s += 1e-3 if self.taken > self.queue_length else 0.5

    def rest(self):
        self.mode = "resting"


def test_batches_of_nothing_are_timed_once_the_queue_is_theirs():
    loader = Loader()
    assert receiving_s_per_batch(loader, lambda: loader.now_s) == pytest.approx(1e-3)
    assert loader.mode == "resting"
    assert loader.taken > 100


# --- a script's loop ends its epochs and evaluates when it wants to; that is no step -----------------------


def measure(*, epoch, **loop):
    """A loop that evaluates for three seconds after each `epoch` batches."""
    loop, clock, steps = Loop(batches_ahead=1, **loop), invented_time(), []

    def step(batch):
        steps.append(batch)
        clock.advance(0.05)
        if len(steps) % epoch == 0:
            loop.breaks += 1
            clock.advance(3.0)

    options = MeasureOptions(budget_s=120.0, loop=loop)
    return run(pipeline_of(train_step=step, num_workers=0), options, lambda _: PRECISE, clock=clock)


@pytest.mark.parametrize(
    ("epoch", "loop", "warned"),
    [
        (100, {}, False),
        (2, {}, False),
        (1, {}, True),
        (100, {"has_queue": True}, False),
        (2, {"has_queue": True}, True),
    ],
)
def test_a_step_in_which_it_breaks_off_counts_only_where_it_cannot_be_left_out(epoch, loop, warned):
    # Guards: epochs of 16 batches, whose validation made a job that waits for a quarter of its time compute-bound.
    outcome = measure(epoch=epoch, **loop)
    held = [block.seconds / block.batches > 0.5 for found in blocks(outcome).values() for block in found]
    assert any(held) == warned
    assert ("loop-breaks-off" in warnings_of(outcome)) == warned
