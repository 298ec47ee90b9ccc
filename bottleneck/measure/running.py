"""The running start of a job with slow batches: its state before anything is recorded or switched.

Recording, and switching to each experiment, takes every worker a batch or two, while the job that was started is
already running. So if batches take long, `raw` is measured from its start, then `device`, with nothing recorded. State
and efficiency are known after a few turns of the workers.
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
from bottleneck.measure.rounds.steady import is_clearly_slower
from bottleneck.measure.rounds.visit import Counters, measure_counted
from bottleneck.results.records import NO_JUDGEMENT, Block, Judgement, Result, Warning
from bottleneck.results.warnings.too_little import too_slow_for_stages

MIN_SLOW_S = 0.4
"""Seconds of a worker per batch above which a job begins with a running start."""
STATE_SHARE = 0.45
"""Share of the budget by which the efficiency should be known."""
MIN_STATE_S = 6.0
"""Seconds for that, at least."""
ENOUGH_ROUNDS = 4
"""Blocks of `raw` that decide a state."""
MIN_ROUNDS = 2
"""Blocks of `raw` without which there is no interval."""
MAX_ROUNDS = 16
"""Blocks of `raw` for a state in doubt, at most."""
ENOUGH_OF_DEVICE = 6
"""Short blocks that decide that the device limits a job."""
MAX_PAIRED_ROUNDS = 6
"""Rounds that blocks are distributed to, at most."""
CLEAR = 0.95
"""Probability of a state without doubt."""
SURE = 0.99
"""Probability at which 'the device limits the job' is the answer."""
_BLOCK_S = 1.2
_DEVICE_BLOCK_S = 0.25
_LOOK_S = 0.3
_SPLIT_ROUNDS = 3
"""Blocks for measuring a turn of the workers, if there is no time for two whole turns."""
_MAX_DELAY = 0.5
"""Share of a batch's time after which the first batch no longer counts as the beginning of a block."""
_LONG_START_S = 12.0
"""Seconds of a first turn of the workers and `ENOUGH_ROUNDS` others above which the first one counts as well."""
_WANTED_HALF_WIDTH = 0.03
"""Half width of the interval of the efficiency below which further blocks do not help."""
_WANTED_PART = 0.25
"""The same as a share of the lost throughput."""
_WORST_HALF_WIDTH = 0.05
_WAITS = 0.03
"""Share of the time for waiting above which batches come in bursts."""


@dataclass(frozen=True)
class FirstBatch:
    """The first batch of the workers.

    Attributes:
        worker_s: Seconds of a worker for it.
        came_s: Time of its arrival, by the clock of the bench.
    """

    worker_s: float
    came_s: float


@dataclass(frozen=True)
class Running:
    """Findings of a running start.

    Attributes:
        judgement: Judgement of its blocks.
        rounds: Number of blocks of `raw`, and of `device`.
        paces: Paces of both.
        batch_s: Seconds of a worker per batch.
    """

    judgement: Judgement
    rounds: int
    paces: dict[Arm, Pace]
    batch_s: float

    @property
    def is_device_bound(self) -> bool:
        """True if the device clearly limits the job, so that no stage of the input is worth measuring."""
        found, leaning = self.judgement, self.judgement.leaning
        sure = found.settled or (leaning is not None and leaning.state == found.state and leaning.chance >= SURE)
        return found.state == "device_bound" and sure


class RunningStart:
    """Measures `raw` without a break, and then `device`; both get the rounds from 1 on.

    The loader was started, and has been asked only for real batches.

    Args:
        bench: Runs the job; its caches hold the first batch.
        ledger: Gets the blocks.
        counters: Counters read at the edges of blocks.
        judge: Judges the blocks so far.
        tell: Reports progress.
        until_s: Time by which the state should be known, by the clock of the bench.
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
        """Measure both ends of the ladder, and return the findings; None if only the first batch was slow."""
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
        # The blocks measured beside the workers were a first look, for the state alone.
        self._ledger.blocks.pop(device, None)
        for arm in self._rungs_without_loader():
            if arm != device:
                bench.prepare(arm)
            for number in range(1, rounds + 1):
                self._ledger.add(arm, self._measure(arm, number, batches))
        self._note(rounds)
        return Running(self._judgement, rounds, self._paces(first.worker_s), self._batch_s(first))

    def _pair_rounds(self) -> int:
        """Distribute the blocks of raw over a few rounds, as `device` has them, and return their number."""
        blocks = self._ledger.blocks[Ladder.raw]
        rounds = min(len(blocks), MAX_PAIRED_ROUNDS)
        self._ledger.blocks[Ladder.raw] = [replace(b, round=1 + at % rounds) for at, b in enumerate(blocks)]
        return rounds

    def _look_at_step(self) -> None:
        """Run the train step on the first batch, while the workers make their second ones."""
        bench, device = self._bench, Ladder.device
        bench.measure(device, 0, 1)  # may compile
        batches = block_batches(device, bench.step_s or 0.0, _LOOK_S, 0)
        self._ledger.add(device, bench.measure(device, 0, batches))
        bench.waits_s.clear()

    def _blocks_of_raw(self, first: FirstBatch) -> Any:
        """Yield the number and the block of each round."""
        bench, raw, step_s = self._bench, Ladder.raw, self._bench.step_s or 0.0
        turn = max(1, self._workers)
        starves = is_clearly_slower(first.worker_s, turn, step_s)
        begun_s = bench.clock()
        # Workers that the job waits for never stand still, no matter what the main process has done since the first
        # batch. A block begins right after a step, as it ends.
        late_s = begun_s - first.came_s - step_s
        is_long = (1 + ENOUGH_ROUNDS) * first.worker_s > min(_LONG_START_S, self._until_s - first.came_s)
        is_ahead = bench.loader.queue_length >= 2 * turn and 0 < late_s < _MAX_DELAY * first.worker_s
        runs_on = starves and is_long and is_ahead
        late_s *= runs_on
        if self._workers and not runs_on:  # without workers nothing is made ahead
            if self._made_s(first) > turn * step_s:
                # The batches that the job would have used by now would hide for long that the workers are slower.
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
        until_s, bench.until_s = bench.until_s, bench.clock()  # no time to wait for the queue to regain its level
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
        """Return True if the efficiency is precise enough, by the blocks or, for slow workers, by their clocks."""
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
        """Judge the blocks so far, and report the judgement."""
        self._ledger.note(loaded_batches=describe_loaded(self._bench.loader))
        self._judgement = found = self._judge(self._ledger.measurement())
        known: dict[str, Any] = {"efficiency": found.efficiency}
        leaning = found.leaning
        if leaning is not None and leaning.chance >= LIKELY:
            # The short ladder can name nothing but the whole input.
            named = leaning.bottleneck if leaning.state == "device_bound" else None
            known |= {"state": leaning.state, "bottleneck": named, "chance": leaning.chance}
        self._tell("measuring as it runs", experiment="raw", round=number, rounds=ENOUGH_ROUNDS, **known)

    def _paces(self, batch_s: float) -> dict[Arm, Pace]:
        """Return the paces of both ends; switching to raw takes a first batch, and a turn of the workers."""
        preparing_s = {Ladder.raw: 2 * batch_s, Ladder.device: self._bench.device_warm_up_s}
        found = {}
        for arm, before_s in preparing_s.items():
            blocks = self._ledger.blocks[arm]
            batches = sum(block.batches for block in blocks)
            found[arm] = Pace(sum(block.seconds for block in blocks) / batches, before_s, batches, Bursts())
        return found

    def _made_s(self, first: FirstBatch) -> float:
        """Return the seconds of a worker per batch so far; of first batches, which open files, only without others."""
        made = self._bench.loader.tallies()
        count = sum(tally.count for tally in made)
        return sum(tally.seconds for tally in made) / count if count else first.worker_s

    def _batch_s(self, first: FirstBatch) -> float:
        """Return the seconds of a worker per batch; an upper bound for a stream, whose batches are not timed."""
        known_s = self._ledger.evidence.loaded_batches.seconds_each
        raw_s = self._ledger.seconds_per_batch(Ladder.raw)
        return known_s or min(first.worker_s, max(1, self._workers) * (raw_s or math.inf))


def whole_turns(turn: int, unit: int) -> int:
    """Return the batches of a block of whole turns of the workers, and of whole updates if that is short enough."""
    both = math.lcm(turn, unit)
    return both if both <= 2 * turn else turn


def _relative_error(count: float, cv: float) -> float:
    """Return half the 95 % interval of a mean, over the mean."""
    return float(stdtrit(count - 1, 0.975)) * cv / math.sqrt(count)


def slow_from_s(workers: int, budget_s: float) -> float:
    """Return the seconds per batch above which a job gets a running start.

    A job that makes its batches in the main process is idle meanwhile, and can be recorded at no cost, unless the
    budget is too short for that.
    """
    return MIN_SLOW_S if workers else max(MIN_SLOW_S, budget_s / _BATCHES_FOR_STAGES)


def warning_if_too_slow(batch_s: float, spent_s: float, budget_s: float) -> Warning | None:
    """Return a warning if there is no time to measure the stages."""
    if budget_s - spent_s > _BATCHES_FOR_STAGES * batch_s:
        return None
    return too_slow_for_stages(batch_s, wanted_s=spent_s + _BATCHES_TO_NAME_ONE * batch_s)


_BATCHES_FOR_STAGES = 5
"""Batches of a worker that the stages take at least: recording, two switches, and a block or two."""
_BATCHES_TO_NAME_ONE = 15
