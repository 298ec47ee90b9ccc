"""What is asked of a job of many ranks after the experiments of one.

What sharing gradients costs: steps with and without it, on batches that are on the device already. This shows a slow
train step, too. Which rank's loader holds all: the rank that waits the most gets its batches from a cache while the
others load, and the other way round; where gradients are shared, the others wait for it inside of their steps. What
loaders take from each other: all at once, against one of them while the others rest.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from bottleneck.loader import modes
from bottleneck.measure.bench import block_batches
from bottleneck.measure.describe import describe_arm
from bottleneck.measure.explain_errors import job_failures
from bottleneck.measure.ladder import Arm
from bottleneck.measure.ledger import Ledger
from bottleneck.measure.machine import MachineUsage, cpu_seconds
from bottleneck.measure.ranks.lockstep import Call, LockstepBench
from bottleneck.measure.training.training import Training
from bottleneck.results.blocks import Block
from bottleneck.results.names import RAW
from bottleneck.results.ranks import Rank, RankTrial, TrialName

SHARE = 0.3
"""Of the budget."""
_FEWEST_ROUNDS, _MOST_ROUNDS = 3, 8
_LONGEST_BLOCK_S, _SHORTEST_BLOCK_S, _STEPS = 0.8, 0.3, 20
_WORTH_FREEING = 0.02
"""The part of the job's step that a rank has to wait for its loader, for a trial without that."""
_AS_LONG = 0.5
"""Ranks that wait longer than this part of the longest wait are freed, too."""
_DEVICE, _RAW, _LOADER = Arm(None, "device"), Arm(modes.ALL, "loader"), Arm(modes.ALL, "loader", coupled=False)


class Trials:
    """What one rank measured in the trials.

    Args:
        bench: Runs the visits in step with the other ranks.
        ledger: Takes the blocks of the ladder's experiments.
        training: Restored at the beginning of each round.
    """

    def __init__(self, bench: LockstepBench, ledger: Ledger, training: Training) -> None:
        self._bench, self._ledger, self._training = bench, ledger, training
        self._blocks: dict[str, list[Block]] = {}
        self._used: dict[str, list[Sequence[float | None]]] = {}
        """What the blocks of loaders alone took: CPU time, and bytes over the network."""
        self._machine = MachineUsage(None)
        bench.read_counters = self._read_counters
        self._round = 0

    def _read_counters(self) -> tuple[float | None, float | None]:
        """CPU time of this process and its workers, and bytes over the network of the host; None where unknown."""
        times_s = [cpu_seconds(pid) for pid in (os.getpid(), *self._bench.loader.workers)]
        return _sum(times_s), self._machine.counters().get("network_bytes")

    @property
    def found(self) -> tuple[RankTrial, ...]:
        """The blocks of this rank."""
        rank, found = self._bench.group.rank, []
        for name, blocks in self._blocks.items():
            used = [_sum(each) for each in zip(*self._used.get(name, ()), strict=True)]
            found.append(RankTrial(name, rank, tuple(blocks), *used))  # type: ignore[arg-type]  # as called
        return tuple(found)

    def follow(self) -> None:
        """Take part in the visits that rank 0 announces, until it has no more."""
        while (call := self._bench.receive()) is not None:
            self._visit(call)

    def lead(
        self, ranks: Sequence[Rank], first_round: int, budget_s: float, clock: Callable[[], float]
    ) -> tuple[int, ...]:
        """Run the trials that are worth it, on all ranks, round by round; return the ranks that were freed.

        Args:
            ranks: As they are known after the rounds.
            first_round: Number of the first round.
            budget_s: Time for all trials.
            clock: Seconds from any beginning.
        """
        freed = wait_most(ranks)
        calls = list(self._calls(freed))
        until_s, longest_s = clock() + budget_s, 0.0
        for number in range(_MOST_ROUNDS):
            began_s = clock()
            if number >= _FEWEST_ROUNDS and began_s + longest_s > until_s:
                break
            for call in calls if number % 2 else calls[::-1]:
                in_round = msgspec.structs.replace(call, round=first_round + number)
                self._bench.announce(in_round)
                self._visit(in_round)
            longest_s = max(longest_s, clock() - began_s)
        return freed

    def _visit(self, call: Call) -> None:
        if call.round != self._round:
            self._training.begin_round()
            self._round = call.round
        with job_failures(describe_arm(call.arm, self._ledger.ladder)):
            block = self._bench.take_part(call)
        if block is not None and call.trial:
            self._blocks.setdefault(call.trial, []).append(block)
            if not call.arm.coupled:
                self._used.setdefault(call.trial, []).append(self._bench.used)
        elif block is not None:
            self._ledger.add(call.arm, block)

    def _calls(self, freed: tuple[int, ...]) -> Iterator[Call]:
        bench = self._bench
        if not bench.sharing.reason:
            yield self._call("device", _DEVICE)
            yield self._call("device-unshared", _DEVICE, shares=False)
        if freed or not bench.sharing.reason:
            yield self._call("raw", _RAW)
        if not bench.sharing.reason:
            yield self._call("raw-unshared", _RAW, shares=False)
        if freed:
            others = tuple(rank for rank in range(bench.group.size) if rank not in freed)
            yield self._call("raw-freed", _RAW, ranks=others, others=_DEVICE)
            yield self._call("raw-held", _RAW, ranks=freed, others=_DEVICE)
        yield self._call("loaders", _LOADER)
        yield self._call("loader-alone", _LOADER, ranks=freed[:1] or (0,))

    def _call(self, trial: TrialName, arm: Arm, **changes: Any) -> Call:
        pace_s = self._ledger.seconds_per_batch(arm) or math.inf  # not measured: as short as it can be
        step_s = self._ledger.seconds_per_batch(_DEVICE) or 0.0
        target_s = min(_LONGEST_BLOCK_S, max(_SHORTEST_BLOCK_S, _STEPS * step_s))
        batches = block_batches(arm, pace_s, target_s, self._bench.most_workers)
        return msgspec.structs.replace(self._bench.plan(arm, 0, batches), trial=trial, looks=False, **changes)


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def wait_most(ranks: Sequence[Rank]) -> tuple[int, ...]:
    """The rank that waits the longest for its loader, and those that wait about as long, if they are half at most.

    Empty where waiting is no part of a step to speak of.
    """
    waits_s = {rank.rank: rank.wait_s_per_batch or 0.0 for rank in ranks}
    ordered = sorted(ranks, key=lambda rank: waits_s[rank.rank], reverse=True)
    first = next(iter(ordered), None)
    raw_s = next((e.coupled_s_per_batch for e in first.experiments if e.name == RAW), None) if first else None
    if first is None or not raw_s or waits_s[first.rank] <= _WORTH_FREEING * raw_s:
        return ()
    freed = tuple(rank.rank for rank in ordered if waits_s[rank.rank] > _AS_LONG * waits_s[first.rank])
    return freed if len(freed) <= len(ranks) / 2 else (first.rank,)
