"""Blocks of a job of many ranks: the same number of steps on each, because gradients couple them.

A single process warms up until its queue is back at its level, and ends a block at the same level. Here rank 0 decides
on the number of steps in each part of a visit, and levels of queues are restored without a step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial

import msgspec
import torch
from torch.nn.parallel import DistributedDataParallel

from bottleneck.measure.bench import Bench, block_batches
from bottleneck.measure.device import JobOnDevice
from bottleneck.measure.keep.search import Search
from bottleneck.measure.ladder import Arm, Ladder
from bottleneck.measure.pacing import Pacing
from bottleneck.measure.ranks.group import Group, Solo, World
from bottleneck.measure.rounds.steady import PATIENCE_S, SteadyState, looks
from bottleneck.results.records import Block

_WARM_UP_STEPS = 10
"""Steps for warming up an accelerator whose step has not been measured yet."""
_MAX_WARM_UP_STEPS = 100
_NOT_FOUND = (
    "no DistributedDataParallel was found in the model or the train step, so that gradients are shared by code that "
    "cannot be left out"
)
_SHARDED = (
    "under FSDP, a step that shares nothing keeps whole gradients on each rank, which may not fit, and leaves the "
    "optimizer none for its shard"
)


class Call(msgspec.Struct, frozen=True):
    """Announcement of one visit by rank 0."""

    arm: Arm
    round: int
    batches: int
    """Length of the block."""
    seconds: float = 0.0
    """Approximate length of a block of a loader alone: each rank fits its own number of batches into it."""
    turn: int = 0
    """Further steps to warm up, after the first one."""
    looks: bool = False
    """True to find first how full the queue is in the long run."""
    trial: str = ""
    """Name of a trial; empty for the experiments of the ladder."""
    ranks: tuple[int, ...] = ()
    """Ranks that run the arm; empty for all."""
    others: Arm | None = None
    """Arm of the other ranks; None if their loaders rest, which is possible for loaders alone."""
    shares: bool = True
    """True if gradients are shared."""

    @property
    def queued(self) -> bool:
        """True if any rank trains on batches from its loader's queue."""
        return self.arm.coupled and any(arm is not None and arm.mode is not None for arm in (self.arm, self.others))

    @property
    def key(self) -> tuple[Arm, str]:
        """The key of visits that form one long run."""
        return self.arm, self.trial


class _FixedLength(SteadyState):
    """Steady state of blocks that end at the length announced by rank 0."""

    def may_end(self, batches: int, seconds: float) -> bool:  # noqa: ARG002 - lengths are fixed
        return True


class Lockstep(Pacing):
    """Pacing in step with the other ranks.

    On rank 0 `begin_visit` announces a visit; the others `receive` it, and `take_part`. If all ranks run the same code,
    each calls `begin_visit`.

    Args:
        bench: Runs the batches.
        group: The ranks.
        sharing: Sharing of gradients, which a visit may leave out.
        most_workers: Largest number of workers of any rank.
    """

    def __init__(self, bench: Bench, *, group: Group, sharing: GradientSharing, most_workers: int) -> None:
        super().__init__(bench)
        self.group = group
        self.sharing = sharing
        self.most_workers = most_workers
        self.read_counters: Callable[[], Mapping[str, float]] = dict
        """Reads counters of this rank around the blocks of a trial of loaders alone."""
        self.used: dict[str, float] = {}
        """Increments of these counters in the last one."""
        self._call = Call(Ladder.device, 0, 1)
        self._steadies: dict[tuple[Arm, str], SteadyState] = {}

    def _make_steady(self) -> SteadyState:
        return _FixedLength(self._bench.loader, self._bench.clock, self._bench.pause)

    # --- the schedule --------------------------------------------------------------------------------------

    def begin_visit(self, arm: Arm, round_: int, batches: int) -> None:
        """Announce a visit to all ranks; those that do not lead wait for it."""
        if self.group.leads:
            self.announce(self.plan(arm, round_, batches))
        else:
            self.receive()

    def plan(self, arm: Arm, round_: int, batches: int) -> Call:
        """Return a visit of all ranks to an arm, of at least that number of batches."""
        turn = max(1, self.most_workers)
        if arm.mode is None:
            steps, warm_up_s, step_s = _WARM_UP_STEPS, self._bench.device_warm_up_s, self._bench.step_s
            if step_s:
                steps = min(_MAX_WARM_UP_STEPS, math.ceil(warm_up_s / step_s))
            return Call(arm, round_, batches, turn=steps if warm_up_s else 0)
        if not arm.coupled:
            return Call(arm, round_, batches, seconds=batches * self._bench.pace_s.get(arm, 0.0))
        # Workers that began together deliver in bursts: a block has whole turns of them.
        batches = turn * math.ceil(batches / turn)
        return Call(arm, round_, batches, turn=turn, looks=self.most_workers > 0 and (arm, "") not in self._steadies)

    def announce(self, call: Call | None) -> None:
        """Let all ranks begin the next visit; None if there is none."""
        self.group.agree("" if call is None else msgspec.json.encode(call).decode())
        if call is not None:
            self._begin(call)

    def receive(self) -> Call | None:
        """Wait for the next visit, and begin it; return None if there is none."""
        text = self.group.agree()
        if not text:
            return None
        call = msgspec.json.decode(text, type=Call)
        self._begin(call)
        return call

    def _begin(self, call: Call) -> None:
        self._call = call
        if call.key not in self._steadies:
            self._steadies[call.key] = made = self._make_steady()
            usual = self._steadies.get((call.arm, ""))
            if usual is not None:
                made.begin_like(usual)
        self.steady = self._steadies[call.key]

    def take_part(self, call: Call) -> Block | None:
        """Run this rank's part of a visit; return None if its loader rests."""
        arm, bench = call.arm if not call.ranks or self.group.rank in call.ranks else call.others, self._bench
        if arm is None:
            bench.loader.rest()
            self.group.barrier()
            self.group.barrier()  # the others have finished
            return None
        usual = bench.waits_s
        if call.trial:
            bench.waits_s = {}  # not those of the original job
        try:
            with nullcontext() if call.shares else self.sharing.left_out():
                bench.prepare(arm)
                bench.settle(arm)
                before = self.read_counters() if call.trial and not arm.coupled else {}
                block = bench.measure(arm, call.round, call.batches)
                after = self.read_counters() if before else {}
                self.used = {key: after[key] - before[key] for key in before.keys() & after.keys()}
            self.end_visit(arm)
            return block
        finally:
            bench.waits_s = usual

    # --- the parts of a visit ------------------------------------------------------------------------------

    def prepare(self, arm: Arm) -> None:
        """Switch to an arm, and run for the same number of steps on all ranks until it is steady."""
        bench = self._bench
        if not arm.coupled:
            self.group.barrier()  # before the switch: batches that a loader makes while it waits would be free
            super().prepare(arm)
            return
        bench.switch(arm.mode)
        first_s = bench.run_waiting(arm)
        level = self._find_level(arm)
        if level is not None:
            self.steady.fill(level, max(PATIENCE_S, 2 * first_s))
        if self._call.queued:
            self.group.barrier()  # some waited for their queues, in which time those of the others got ahead
        if level is not None:
            self.steady.drain(level)
        for _ in range(self._call.turn):
            bench.run_waiting(arm)

    def _find_level(self, arm: Arm) -> int | None:
        """Return the level of the queue at the beginning of a block; None without a queue, or if it is unknown."""
        loader = self._bench.loader
        has_queue = arm.mode is not None and loader.num_workers > 0 and loader.arrived() is not None
        if self._call.looks:
            turn = self.most_workers
            if has_queue:
                return self.steady.look(lambda: self._bench.run_waiting(arm), turn)
            for _ in range(looks(turn)):
                self._bench.run_waiting(arm)
        return self.steady.level(arm) if has_queue else None

    def settle(self, arm: Arm) -> int:
        """Run one more batch before a block, on all ranks or none."""
        if not arm.coupled:
            return super().settle(arm)
        return self._bench.run_batch(arm, []) if self._call.queued else 0

    def can_leave_out(self, arm: Arm) -> bool:  # noqa: ARG002 - all ranks count the same steps
        return False

    def length(self, arm: Arm, batches: int) -> int:
        """Return the length of all ranks; of a loader alone, one that takes about as long as on rank 0."""
        if arm.coupled:
            return self._call.batches
        if self.group.leads:
            return batches
        pace_s, workers = self._bench.pace_s.get(arm, math.inf), self._bench.loader.num_workers
        return block_batches(arm, pace_s, self._call.seconds, workers)

    def end_visit(self, arm: Arm) -> None:
        """Run a loader alone until those of all ranks have been timed: loaders slow each other down."""
        if not arm.coupled:
            self.group.barrier(lambda: self._bench.run_batch(arm, []))


class GradientSharing:
    """The wrappers of a job that share gradients, and a way to leave that out of a step.

    Args:
        roots: Objects to search for them, by name: the model and the train step.
    """

    def __init__(self, roots: Mapping[str, object]) -> None:
        search = Search()
        search.walk(roots)
        self._wrappers = search.all(DistributedDataParallel)
        self.reason = self._why_not(search.all(torch.nn.Module))
        """Reason why it cannot be left out; empty if it can."""

    def _why_not(self, modules: list[torch.nn.Module]) -> str:
        if any(_is_sharded(module) for module in modules):
            return _SHARDED
        if not self._wrappers:
            return _NOT_FOUND
        if any(wrapper.static_graph for wrapper in self._wrappers):
            return "static_graph=True fixes what each step shares"
        if any(wrapper.find_unused_parameters for wrapper in self._wrappers):
            # A step that shares after one that does not is assumed to have used the parameters of both.
            return "find_unused_parameters=True needs every step to share"
        return ""

    @contextmanager
    def left_out(self) -> Iterator[None]:
        """Let steps share nothing: the weights of the ranks drift apart until they are restored."""
        with ExitStack() as stack:
            for wrapper in self._wrappers:
                stack.enter_context(wrapper.no_sync())
            yield


def _is_sharded(module: torch.nn.Module) -> bool:
    """Return True if FSDP shares the gradients of a module: `fully_shard`, or a wrapper of PyTorch or fairscale."""
    by_name = any(kind.__name__ == "FullyShardedDataParallel" for kind in type(module).__mro__)
    return by_name or callable(getattr(type(module), "set_requires_gradient_sync", None))


def pacing_for(group: World, job: JobOnDevice) -> Callable[[Bench], Pacing]:
    """Return a factory of pacings, which are in step with other ranks if there are any; called on each of them."""
    if isinstance(group, Solo):
        return Pacing
    sharing = GradientSharing({"the model": job.pipeline.model, "the train step": job.step})
    if any(group.share(sharing.reason)) and not sharing.reason:
        sharing.reason = "another rank cannot leave it out"
    most_workers = max(group.share(job.loader.num_workers))
    return partial(Lockstep, group=group, sharing=sharing, most_workers=most_workers)
