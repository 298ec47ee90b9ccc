"""Blocks of a job of many ranks: the same number of steps on each, because gradients couple them.

A single process warms up until its queue is back at its level, and ends a block at the same level. Here rank 0 decides
on the number of steps in each part of a visit, and levels of queues are restored without a step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial

import msgspec
import torch
from torch.nn.parallel import DistributedDataParallel

from bottleneck.measure.bench import Bench, block_batches
from bottleneck.measure.device import JobOnDevice
from bottleneck.measure.keep.search import Search
from bottleneck.measure.ladder import Arm, Ladder
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


@dataclass
class LockstepBench(Bench):
    """Runs the job in any of its arms, in step with the other ranks.

    On rank 0 `begin_visit` announces a visit; the others `receive` it, and `take_part`. If all ranks run the same code,
    each calls `begin_visit`.
    """

    group: Group = field(kw_only=True)
    sharing: GradientSharing = field(kw_only=True)
    most_workers: int = field(kw_only=True)
    """Largest number of workers of any rank."""
    read_counters: Callable[[], Mapping[str, float]] = dict
    """Reads counters of this rank around the blocks of a trial of loaders alone."""
    used: dict[str, float] = field(default_factory=dict, init=False)
    """Increments of these counters in the last one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._call = Call(Ladder.device, 0, 1)
        self._steadies: dict[tuple[Arm, str], SteadyState] = {}
        self._pace_s: dict[Arm, float] = {}

    def _make_steady(self) -> SteadyState:
        return _FixedLength(self.loader, self.clock, self.pause)

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
            steps = _WARM_UP_STEPS
            if self.step_s:
                steps = min(_MAX_WARM_UP_STEPS, math.ceil(self.device_warm_up_s / self.step_s))
            return Call(arm, round_, batches, turn=steps if self.device_warm_up_s else 0)
        if not arm.coupled:
            return Call(arm, round_, batches, seconds=batches * self._pace_s.get(arm, 0.0))
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
        self._steady = self._steadies[call.key]

    def take_part(self, call: Call) -> Block | None:
        """Run this rank's part of a visit; return None if its loader rests."""
        arm = call.arm if not call.ranks or self.group.rank in call.ranks else call.others
        if arm is None:
            self.loader.rest()
            self.group.barrier()
            self.group.barrier()  # the others have finished
            return None
        usual = self.waits_s
        if call.trial:
            self.waits_s = {}  # not those of the original job
        try:
            with nullcontext() if call.shares else self.sharing.left_out():
                self.prepare(arm)
                self.settle(arm)
                block = self.measure(arm, call.round, call.batches)
            self.end_visit(arm)
            return block
        finally:
            self.waits_s = usual

    # --- the parts of a visit ------------------------------------------------------------------------------

    def prepare(self, arm: Arm) -> None:
        """Switch to an arm, and run for the same number of steps on all ranks until it is steady."""
        if not arm.coupled:
            self.group.barrier()  # before the switch: batches that a loader makes while it waits would be free
            super().prepare(arm)
            return
        self._switch(arm.mode)
        first_s = self._run_waiting(arm)
        level = self._find_level(arm)
        if level is not None:
            self._steady.fill(level, max(PATIENCE_S, 2 * first_s))
        if self._call.queued:
            self.group.barrier()  # some waited for their queues, in which time those of the others got ahead
        if level is not None:
            self._steady.drain(level)
        for _ in range(self._call.turn):
            self._run_waiting(arm)
        self.synchronize()

    def _find_level(self, arm: Arm) -> int | None:
        """Return the level of the queue at the beginning of a block; None without a queue, or if it is unknown."""
        has_queue = arm.mode is not None and self.loader.num_workers > 0 and self.loader.arrived() is not None
        if self._call.looks:
            turn = self.most_workers
            if has_queue:
                return self._steady.look(lambda: self._run_waiting(arm), turn)
            for _ in range(looks(turn)):
                self._run_waiting(arm)
        return self._steady.level(arm) if has_queue else None

    def settle(self, arm: Arm) -> int:
        """Run one more batch before a block, on all ranks or none."""
        if not arm.coupled:
            return super().settle(arm)
        return self._run_once(arm, []) if self._call.queued else 0

    def _can_leave_out(self, arm: Arm) -> bool:  # noqa: ARG002 - all ranks count the same steps
        return False

    def measure(self, arm: Arm, round_: int, batches: int, collecting_s: Callable[[], float] = lambda: 0.0) -> Block:
        """Time a block: with as many batches as on all ranks; of a loader alone, about as long as on rank 0."""
        if not arm.coupled and not self.group.leads:
            batches = block_batches(arm, self._pace_s.get(arm, math.inf), self._call.seconds, self.loader.num_workers)
        before = self.read_counters() if self._call.trial and not arm.coupled else {}
        block = super().measure(arm, round_, batches if not arm.coupled else self._call.batches, collecting_s)
        after = self.read_counters() if before else {}
        self.used = {key: after[key] - before[key] for key in before.keys() & after.keys()}
        self._pace_s[arm] = block.seconds / block.batches
        return block

    def end_visit(self, arm: Arm) -> None:
        """Run a loader alone until those of all ranks have been timed: loaders slow each other down."""
        if not arm.coupled:
            self.group.barrier(lambda: self._run_once(arm, []))

    def _whole_passes(self, arm: Arm, batches: int) -> int:  # noqa: ARG002 - the length is that of all ranks
        self.host.rewind()
        self.device.rewind()
        return batches


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


def bench_maker(group: World, job: JobOnDevice) -> Callable[..., Bench]:
    """Return a factory of benches, which run in step with other ranks if there are any; called on each of them."""
    if isinstance(group, Solo):
        return Bench
    sharing = GradientSharing({"the model": job.pipeline.model, "the train step": job.step})
    if any(group.share(sharing.reason)) and not sharing.reason:
        sharing.reason = "another rank cannot leave it out"
    most_workers = max(group.share(job.loader.num_workers))
    return partial(LockstepBench, group=group, sharing=sharing, most_workers=most_workers)
