"""Blocks of a job of many ranks: the same number of steps on each, because gradients couple them.

A single process warms up until its queue is as full as it was, and ends a block at the same level. Here rank 0 says how
many steps each part of a visit has, and levels of queues are restored without a step.
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
from bottleneck.measure.ranks.group import Group
from bottleneck.measure.rounds.steady import PATIENCE_S, SteadyState, looks
from bottleneck.results.records import Block

_WARM_UP_STEPS = 10
"""Of an accelerator whose step has not been measured yet."""
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
    """One visit, as rank 0 announces it."""

    arm: Arm
    round: int
    batches: int
    """Of the block."""
    seconds: float = 0.0
    """Of a block of a loader alone, about: each rank fits its own number of batches into it."""
    turn: int = 0
    """Further steps to warm up, after the first one."""
    looks: bool = False
    """Find first how full the queue is in the long run."""
    trial: str = ""
    """Its name; empty for the experiments of the ladder."""
    ranks: tuple[int, ...] = ()
    """Those that run the arm; none: all do."""
    others: Arm | None = None
    """What the other ranks run; None: their loaders rest, which goes with loaders alone."""
    shares: bool = True
    """Gradients are shared."""

    @property
    def queued(self) -> bool:
        """Some rank trains on batches from its loader's queue."""
        return self.arm.coupled and any(arm is not None and arm.mode is not None for arm in (self.arm, self.others))

    @property
    def key(self) -> tuple[Arm, str]:
        """Visits with the same key are one long run."""
        return self.arm, self.trial


class _FixedLength(SteadyState):
    """Blocks end at the length that rank 0 has announced."""

    def may_end(self, batches: int, seconds: float) -> bool:  # noqa: ARG002 - it is the same at any length
        return True


@dataclass
class LockstepBench(Bench):
    """Runs the job in any of its arms, in step with the other ranks.

    On rank 0 `begin_visit` announces a visit; the others `receive` it, and `take_part`. Where all ranks go through the
    same code, each calls `begin_visit`.
    """

    group: Group = field(kw_only=True)
    sharing: GradientSharing = field(kw_only=True)
    most_workers: int = field(kw_only=True)
    """Of any rank."""
    read_counters: Callable[[], Mapping[str, float]] = dict
    """Of this rank; read around the blocks of a trial of loaders alone."""
    used: dict[str, float] = field(default_factory=dict, init=False)
    """How much these counters grew in the last one."""

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
        """A visit of all ranks to an arm, of that number of batches at least."""
        turn = max(1, self.most_workers)
        if arm.mode is None:
            return Call(arm, round_, batches, turn=self._device_warm_up())
        if not arm.coupled:
            return Call(arm, round_, batches, seconds=batches * self._pace_s.get(arm, 0.0))
        # Workers that began together deliver in bursts: a block has whole turns of them.
        batches = turn * math.ceil(batches / turn)
        return Call(arm, round_, batches, turn=turn, looks=self.most_workers > 0 and (arm, "") not in self._steadies)

    def _device_warm_up(self) -> int:
        if not self.device_warm_up_s:
            return 0
        known = self.step_s
        return _WARM_UP_STEPS if not known else min(_MAX_WARM_UP_STEPS, math.ceil(self.device_warm_up_s / known))

    def announce(self, call: Call | None) -> None:
        """Let all ranks begin the next visit; None: there is none."""
        self.group.agree("" if call is None else msgspec.json.encode(call).decode())
        if call is not None:
            self._begin(call)

    def receive(self) -> Call | None:
        """Wait for the next visit, and begin it; None: there is none."""
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
        """Run this rank's part of a visit; None where its loader rests."""
        arm = call.arm if not call.ranks or self.group.rank in call.ranks else call.others
        if arm is None:
            self.loader.rest()
            self.group.barrier()
            self.group.barrier()  # the others have finished
            return None
        usual = self.waits_s
        if call.trial:
            self.waits_s = {}  # not those of the job as it is
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
        """Switch to an arm, and run for as many steps as all ranks do until it is steady."""
        if not arm.coupled:
            self.group.barrier()  # before the switch: what a loader makes while it waits would come for free
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
        """The level of the queue that its block begins with; None where there is no queue, or it cannot be seen."""
        has_queue = arm.mode is not None and self.loader.num_workers > 0 and self.loader.arrived() is not None
        if self._call.looks:
            turn = self.most_workers
            if has_queue:
                return self._steady.look(lambda: self._run_waiting(arm), turn)
            for _ in range(looks(turn)):
                self._run_waiting(arm)
        return self._steady.level(arm) if has_queue else None

    def settle(self, arm: Arm) -> int:
        """Run one batch more before a block, all ranks or none."""
        if not arm.coupled:
            return super().settle(arm)
        return self._run_once(arm, []) if self._call.queued else 0

    def _can_leave_out(self, arm: Arm) -> bool:  # noqa: ARG002 - all ranks count the same steps
        return False

    def measure(self, arm: Arm, round_: int, batches: int, collecting_s: Callable[[], float] = lambda: 0.0) -> Block:
        """Time a block: of as many batches as on all ranks, or of a loader alone about as long as on rank 0."""
        if not arm.coupled and not self.group.leads:
            batches = block_batches(arm, self._pace_s.get(arm, math.inf), self._call.seconds, self.loader.num_workers)
        before = self.read_counters() if self._call.trial and not arm.coupled else {}
        block = super().measure(arm, round_, batches if not arm.coupled else self._call.batches, collecting_s)
        after = self.read_counters() if before else {}
        self.used = {key: after[key] - before[key] for key in before.keys() & after.keys()}
        self._pace_s[arm] = block.seconds / block.batches
        return block

    def end_visit(self, arm: Arm) -> None:
        """Let a loader alone go on until those of all ranks have been timed: loaders slow each other down."""
        if not arm.coupled:
            self.group.barrier(lambda: self._run_once(arm, []))

    def _whole_passes(self, arm: Arm, batches: int) -> int:  # noqa: ARG002 - the length is that of all ranks
        self.host.rewind()
        self.device.rewind()
        return batches


class GradientSharing:
    """The wrappers of a job that share gradients, and how to leave that out of a step.

    Args:
        roots: Where to search for them, by name: the model and the train step.
    """

    def __init__(self, roots: Mapping[str, object]) -> None:
        search = Search()
        search.walk(roots)
        self._wrappers = search.all(DistributedDataParallel)
        self.reason = self._why_not(search.all(torch.nn.Module))
        """Why it cannot be left out; empty where it can."""

    def _why_not(self, modules: list[torch.nn.Module]) -> str:
        if any(_is_sharded(module) for module in modules):
            return _SHARDED
        if not self._wrappers:
            return _NOT_FOUND
        if any(wrapper.static_graph for wrapper in self._wrappers):
            return "static_graph=True fixes what each step shares"
        if any(wrapper.find_unused_parameters for wrapper in self._wrappers):
            # A step that shares after one that does not is taken to have used the parameters of both.
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
    """Whether FSDP shares the gradients of a module: `fully_shard`, or a wrapper of PyTorch's or fairscale's."""
    by_name = any(kind.__name__ == "FullyShardedDataParallel" for kind in type(module).__mro__)
    return by_name or callable(getattr(type(module), "set_requires_gradient_sync", None))


def bench_maker(group: Group, job: JobOnDevice) -> Callable[..., Bench]:
    """What makes a bench that runs in step with the other ranks; called on each of them."""
    sharing = GradientSharing({"the model": job.pipeline.model, "the train step": job.step})
    if any(group.share(sharing.reason)) and not sharing.reason:
        sharing.reason = "another rank cannot leave it out"
    most_workers = max(group.share(job.loader.num_workers))
    return partial(LockstepBench, group=group, sharing=sharing, most_workers=most_workers)
