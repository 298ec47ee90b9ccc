"""The running start of a job with slow batches: its state before anything is recorded or switched.

To record, and to switch to each experiment, takes every worker a batch or two, and the job that was started runs
already. So where batches take long, raw is measured as it runs from its start, then `device`, with nothing recorded. A
state, and an efficiency, are known after a few turns of the workers.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from scipy.special import stdtrit

from bottleneck.measure.bench import Bench, block_batches
from bottleneck.measure.evidence.dataset import describe_loaded
from bottleneck.measure.ladder import Arm, Ladder
from bottleneck.measure.ledger import Ledger
from bottleneck.measure.rounds.schedule import LIKELY, Bursts, Pace
from bottleneck.measure.rounds.steady import is_surely_slower
from bottleneck.measure.rounds.visit import Counters, measure_counted
from bottleneck.results.records import NO_JUDGEMENT, Block, Judgement, Result

MIN_SLOW_S = 0.4
"""Time of a worker for a batch from which on a job begins so."""
STATE_SHARE = 0.45
MIN_STATE_S = 6.0
"""Share of the budget by which the efficiency shall be known, and what there is for it at least."""
ENOUGH_ROUNDS = 4
MIN_ROUNDS = 2
MAX_ROUNDS = 16
"""Blocks of raw that decide a state; without which there is no interval; and the most for a state in doubt."""
ENOUGH_OF_DEVICE = MAX_PAIRED_ROUNDS = 6
"""Short blocks that decide that the device limits a job; and the most rounds that blocks are shared out to."""
CLEAR = 0.95
SURE = 0.99
"""The chance from which on a state is in no doubt, and from which on it is the answer where the device limits a job."""
_BLOCK_S = 1.2
_DEVICE_BLOCK_S = 0.25
_LOOK_S = 0.3
_SPLIT_ROUNDS = 3
"""Blocks in which a turn of the workers is measured that takes longer than there is time for two of it."""
_MAX_DELAY = 0.5
"""Part of a batch's time after which the first batch no longer counts as the beginning of a block."""
_LONG_START_S = 12.0
"""Time for a first turn of the workers and `ENOUGH_ROUNDS` others, from which on the first one counts as well."""
_WANTED_HALF_WIDTH = 0.03
_WANTED_PART = 0.25
_WORST_HALF_WIDTH = 0.05
"""Half the interval of the efficiency, or its part of what is lost, from which on further blocks say no more."""
_WAITS = 0.03
"""Share of the time from which on a job waits for its batches, which then come in bursts."""


@dataclass(frozen=True)
class FirstBatch:
    """The first batch of the workers.

    Attributes:
        worker_s: Time of a worker for it [s].
        came_s: When it came, by the clock of the bench.
    """

    worker_s: float
    came_s: float


@dataclass(frozen=True)
class Running:
    """What a running start has shown.

    Attributes:
        judgement: What the blocks say.
        rounds: The number of blocks of raw, and of `device`.
        paces: How fast both are.
        batch_s: Time of a worker for a batch [s].
    """

    judgement: Judgement
    rounds: int
    paces: dict[Arm, Pace]
    batch_s: float

    @property
    def is_device_bound(self) -> bool:
        """Whether the device clearly limits the job, so that no stage of the input is worth measuring."""
        found, leaning = self.judgement, self.judgement.leaning
        sure = found.settled or (leaning is not None and leaning.state == found.state and leaning.chance >= SURE)
        return found.state == "device_bound" and sure


class RunningStart:
    """Measures raw without a break, and then `device`; both get the rounds from 1 on.

    The loader was started, and has been asked for nothing but real batches.

    Args:
        bench: What runs the job; its caches hold the first batch.
        ledger: Gets the blocks.
        counters: What is counted at the edges of blocks.
        judge: Says what the blocks so far show.
        tell: Reports progress.
        until_s: When, by the clock of the bench, the state shall be known.
    """

    def __init__(
        self,
        bench: Bench,
        ledger: Ledger,
        counters: Counters,
        judge: Callable[[Result], Judgement],
        tell: Callable[..., None],
        until_s: float,
    ) -> None:
        self._bench = bench
        self._ledger = ledger
        self._counters = counters
        self._judge = judge
        self._tell = tell
        self._until_s = until_s
        self._workers = bench.loader.num_workers
        self._judgement = NO_JUDGEMENT

    def measure(self, first: FirstBatch) -> Running | None:
        """Measure both ends of the ladder, and return what they show; None where only the first batch was slow."""
        bench, raw, device = self._bench, Ladder.raw, Ladder.device
        self._counters.training.begin_round()
        self._look_at_step()
        bench.events = bench.make_events()
        for number, block in self._blocks_of_raw(first):
            self._ledger.add(raw, block)
            self._note(number)
            if self._batch_s(first) < MIN_SLOW_S / 2:
                self._ledger.blocks.clear()
                bench.events = None
                return None
            if self._has_enough(number, block.seconds):
                break
        if bench.events is not None:
            self._ledger.note(device_time=bench.events.evidence())
            bench.events = None
        rounds = self._pair_rounds()
        bench.prepare(device)
        step_s = bench.step_s or 0.0
        batches = block_batches(device, step_s, _DEVICE_BLOCK_S, 0)
        # That beside the workers was a first look, for the state alone.
        self._ledger.blocks.pop(device, None)
        for arm in self._rungs_without_loader():
            if arm != device:
                bench.prepare(arm)
            for number in range(1, rounds + 1):
                self._ledger.add(arm, self._measure(arm, number, batches))
        self._note(rounds)
        return Running(self._judgement, rounds, self._paces(first.worker_s), self._batch_s(first))

    def _pair_rounds(self) -> int:
        """Share the blocks of raw out over a few rounds, as `device` has them, and return how many."""
        blocks = self._ledger.blocks[Ladder.raw]
        rounds = min(len(blocks), MAX_PAIRED_ROUNDS)
        self._ledger.blocks[Ladder.raw] = [replace(b, round=1 + at % rounds) for at, b in enumerate(blocks)]
        return rounds

    def _look_at_step(self) -> None:
        """Run the train step on the first batch, while the workers are at their second ones."""
        bench, device = self._bench, Ladder.device
        bench.measure(device, 0, 1)  # may compile
        batches = block_batches(device, bench.step_s or 0.0, _LOOK_S, 0)
        self._ledger.add(device, bench.measure(device, 0, batches))
        bench.waits_s.clear()

    def _blocks_of_raw(self, first: FirstBatch) -> Any:
        """Yield the number and the block of each round."""
        bench, raw, step_s = self._bench, Ladder.raw, self._bench.step_s or 0.0
        turn = max(1, self._workers)
        starves = is_surely_slower(first.worker_s, turn, step_s)
        begun_s = bench.clock()
        # Workers that the job waits for never stand still, whatever the main process has done since the first batch. A
        # block begins as it ends, after a step.
        late_s = begun_s - first.came_s - step_s
        is_long = (1 + ENOUGH_ROUNDS) * first.worker_s > min(_LONG_START_S, self._until_s - first.came_s)
        is_ahead = bench.loader.queue_length >= 2 * turn and 0 < late_s < _MAX_DELAY * first.worker_s
        runs_on = starves and is_long and is_ahead
        late_s *= runs_on
        if self._workers and not runs_on:  # without workers nothing is made ahead
            if self._made_s(first) > turn * step_s:
                # What the job would have used up by now would hide for long that they are slower.
                used = int((begun_s - first.came_s) / max(step_s, 1e-9))
                for _ in range(min(bench.loader.arrived() or 0, used)):
                    bench.loader.next_batch()
            starves |= bench.prepare_running(_BLOCK_S) > _WAITS
        batches = (
            whole_turns(turn, bench.loop.batches_per_update) if starves else block_batches(raw, step_s, _BLOCK_S, 1)
        )
        turn_s, rounds = max(first.worker_s, turn * step_s), MAX_ROUNDS
        if starves and MIN_ROUNDS * turn_s > self._until_s - bench.clock():
            batches, rounds = math.ceil(turn / _SPLIT_ROUNDS), _SPLIT_ROUNDS
        for number in range(1, rounds + 1):
            block = self._measure(raw, number, batches)
            yield number, replace(block, seconds=block.seconds + late_s)
            late_s = 0.0

    def _measure(self, arm: Arm, number: int, batches: int) -> Block:
        bench = self._bench
        until_s, bench.until_s = bench.until_s, bench.clock()  # no time to wait for the queue to be as it was
        try:
            return measure_counted(bench, arm, number, batches, self._counters, settles=False)[0]
        finally:
            bench.until_s = until_s

    def _has_enough(self, rounds: int, block_s: float) -> bool:
        late = self._bench.clock() + block_s > self._until_s
        found = self._judgement.leaning
        clear = found is not None and found.chance >= CLEAR
        enough = ENOUGH_OF_DEVICE if found is not None and found.state == "device_bound" else ENOUGH_ROUNDS
        return (rounds >= enough and clear and self._is_precise()) or (rounds >= MIN_ROUNDS and late)

    def _is_precise(self) -> bool:
        """Whether the efficiency is known as well as is of use, by the blocks or, of slow workers, by their clocks."""
        paces_s = [block.seconds / block.batches for block in self._ledger.blocks[Ladder.raw]]
        step_s, made = self._bench.step_s or 0.0, self._ledger.evidence.loaded_batches
        efficiency = min(1.0, step_s / statistics.fmean(paces_s))
        error = _relative_error(len(paces_s), statistics.stdev(paces_s) / statistics.fmean(paces_s))
        if made.count and made.seconds_each and made.seconds_each > self._workers * step_s:
            error = min(error, _relative_error(made.count, made.cv or 0.0))
        wanted = min(_WORST_HALF_WIDTH, max(_WANTED_HALF_WIDTH, _WANTED_PART * (1 - efficiency)))
        return efficiency * error <= wanted

    def _rungs_without_loader(self) -> list[Arm]:
        rungs = (rung.coupled for rung in self._ledger.ladder.rungs)
        return [arm for arm in rungs if arm is not None and arm.mode is None]

    def _note(self, number: int) -> None:
        """Judge what is there, and report it."""
        self._ledger.note(loaded_batches=describe_loaded(self._bench.loader))
        self._judgement = found = self._judge(self._ledger.measurement())
        known: dict[str, Any] = {"efficiency": found.efficiency}
        leaning = found.leaning
        if leaning is not None and leaning.chance >= LIKELY:
            # All that the short ladder could name is the whole of the input.
            named = leaning.bottleneck if leaning.state == "device_bound" else None
            known |= {"state": leaning.state, "bottleneck": named, "chance": leaning.chance}
        self._tell("measuring as it runs", experiment="raw", round=number, rounds=ENOUGH_ROUNDS, **known)

    def _paces(self, batch_s: float) -> dict[Arm, Pace]:
        """The paces of both ends; to switch to raw takes a first batch, and a turn of the workers."""
        preparing_s = {Ladder.raw: 2 * batch_s, Ladder.device: self._bench.device_warm_up_s}
        found = {}
        for arm, before_s in preparing_s.items():
            blocks = self._ledger.blocks[arm]
            batches = sum(block.batches for block in blocks)
            found[arm] = Pace(sum(block.seconds for block in blocks) / batches, before_s, batches, Bursts())
        return found

    def _made_s(self, first: FirstBatch) -> float:
        """Time of a worker for a batch so far [s]; that of first batches, which open files, only for want of others."""
        made = self._bench.loader.tallies()
        count = sum(tally.count for tally in made)
        return sum(tally.seconds for tally in made) / count if count else first.worker_s

    def _batch_s(self, first: FirstBatch) -> float:
        """Time of a worker for a batch [s]; of a stream, whose batches are not timed, the most that it can be."""
        known_s = self._ledger.evidence.loaded_batches.seconds_each
        raw_s = self._ledger.seconds_per_batch(Ladder.raw)
        return known_s or min(first.worker_s, max(1, self._workers) * (raw_s or math.inf))


def whole_turns(turn: int, unit: int) -> int:
    """Return a block of whole turns of the workers that ends on a whole update of the weights, if a short one does."""
    both = math.lcm(turn, unit)
    return both if both <= 2 * turn else turn


def _relative_error(count: float, cv: float) -> float:
    """Half the 95 % interval of a mean, over the mean."""
    return float(stdtrit(count - 1, 0.975)) * cv / math.sqrt(count)


def slow_from_s(workers: int, budget_s: float) -> float:
    """Return the time for a batch from which on a job is measured as it was started.

    One that makes its batches in the main process is at rest meanwhile, and can be recorded at no cost, unless the
    budget is not enough for that.
    """
    return MIN_SLOW_S if workers else max(MIN_SLOW_S, budget_s / _BATCHES_FOR_STAGES)


def too_slow_for_stages(batch_s: float, spent_s: float, budget_s: float) -> tuple[str, str] | None:
    """Return id and message of a warning where there is no time to measure anything of the stages."""
    if budget_s - spent_s > _BATCHES_FOR_STAGES * batch_s:
        return None
    wanted_s = spent_s + _BATCHES_TO_NAME_ONE * batch_s
    return (
        "too-slow-for-stages",
        f"A batch takes {batch_s:.0f} s to make. The budget was enough for how the job runs as a whole, and not "
        f"for its stages: give it --budget {math.ceil(wanted_s / 60)}m.",
    )


_BATCHES_FOR_STAGES = 5
"""Times a worker's batch that the stages take at least: recording, two switches, and a block or two."""
_BATCHES_TO_NAME_ONE = 15
