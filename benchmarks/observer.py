"""The observer effect: is the job that the diagnosis measures as fast as the one that the user runs?

Blocks of coupled raw, measured as a diagnosis does, alternate with blocks of a plain training loop over a plain
DataLoader with the same arguments. Before each block of coupled raw another experiment runs, in turn, so that what it
leaves behind is included. A pair in which the machine's hypervisor took far more than usual is left
out, by the counter by which a diagnosis tells that.
"""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from scipy import stats

from benchmarks.checks import Check, markdown_table
from benchmarks.plain import plain_loader, plain_move
from benchmarks.planted import find_planted
from benchmarks.staged import staged_job
from benchmarks.uneven import UnevenLoader
from bottleneck.measure.bench import Bench, block_batches
from bottleneck.measure.ladder import Ladder
from bottleneck.measure.rounds.turns import RepeatPolicy, StealTime, StealTimeMeter
from bottleneck.measure.rounds.visit import Counters, visit
from bottleneck.results.records import Interval

TOLERANCE = 0.02
PRECISION = 0.006
"""Half the interval at which there are pairs enough."""
MIN_PAIRS, MAX_PAIRS, MAX_PAIRS_QUICK = 20, 160, 8
BLOCK_S = 0.5
"""Short, so that both of a pair meet the machine in the same state."""
_LENGTH = 10_000_000
"""Samples: no plain loop comes to the end of its epoch."""
OBSERVED: dict[str, Callable[[], dict[str, Any]]] = {
    name: partial(find_planted(name).build, length=_LENGTH)
    for name in ("balanced", "augment_spin", "load_wait", "copy_slow", "no_workers", "device_bound")
} | {
    # Where workers are uneven, the state of the queues at the edges of a block decides what it shows.
    "4 uneven workers": UnevenLoader(4, 0.090, 0.15, 0.020).build,
    "8 uneven workers": UnevenLoader(8, 0.190, 0.30, 0.020).build,
}
_QUEUES_A_BLOCK = 4
_WARM_UP_TURNS = 6
"""Batches of each worker to train on before a plain block."""


@dataclass(frozen=True)
class ObserverEffect:
    """Time per batch under diagnosis over that of the plain loop, in pairs."""

    name: str
    ratios: tuple[float, ...]
    ratio: Interval
    left_out: tuple[float, ...] = ()
    """Pairs in which the machine was disturbed far more than usual: what share of the cores others took in each."""

    @property
    def held(self) -> bool:
        """Return True if the diagnosis clearly measured the user's own speed, with the whole interval within 2 %."""
        return max(abs(self.ratio.low - 1), abs(self.ratio.high - 1)) <= TOLERANCE

    @property
    def why_left_out(self) -> str:
        """Return the pairs that do not count, in words."""
        if not self.left_out:
            return "none"
        return f"{len(self.left_out)}: others took {min(self.left_out):.0%} – {max(self.left_out):.0%} of the cores"


@dataclass(frozen=True)
class Timed:
    """A block: seconds per batch, and what other virtual machines took meanwhile."""

    seconds_per_batch: float
    stolen: StealTime


class PlainLoop:
    """The loop that a user would write, on warm persistent workers; it goes on where it stopped."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self._step, self._move = fields["train_step"], plain_move(fields)
        self._device = torch.device(fields["device"])
        self._batches = iter(plain_loader(fields))
        self._workers, self._stolen = fields["num_workers"], StealTimeMeter()
        self._warm_up = _WARM_UP_TURNS * max(self._workers, 1)
        self._queue = self._workers * (fields.get("prefetch_factor") or 2)

    def run_block(self, batches: int) -> Timed:
        """Train on some batches until steady, and then on so many more.

        Batches in the queues since the block before were made while none were taken. Where the loader is a little
        slower than the step, it would last for longer than the block.
        """
        for _ in range(self._queue):
            next(self._batches)
        self._train(self._warm_up)
        self._synchronize()
        self._stolen.begin()
        start = time.perf_counter()
        self._train(batches)
        self._synchronize()
        seconds = time.perf_counter() - start
        return Timed(seconds / batches, self._stolen.end(processes=1 + self._workers))

    def _train(self, batches: int) -> None:
        for _ in range(batches):
            self._step(self._move(next(self._batches), self._device))

    def _synchronize(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


class StagedRaw:
    """Blocks of coupled raw as a diagnosis measures them, each after a block of another experiment."""

    def __init__(self, bench: Bench, ladder: Ladder, counters: Counters, prefetch_factor: int = 2) -> None:
        self._bench, self.raw, self._counters = bench, ladder.raw, counters
        self._others = itertools.cycle([arm for arm in ladder.arms() if arm != ladder.raw])
        self._fewest = block_batches(ladder.raw, 1.0, 0.0, bench.loader.num_workers)
        self.batches = self._fewest
        pace_s = self.run_block().seconds_per_batch
        queues = _QUEUES_A_BLOCK * bench.loader.num_workers * prefetch_factor
        self.batches = block_batches(ladder.raw, pace_s, max(BLOCK_S, queues * pace_s), bench.loader.num_workers)

    def run_block(self) -> Timed:
        """Measure a block."""
        visit(self._bench, next(self._others), 0, self._fewest, self._counters)
        made = visit(self._bench, self.raw, 0, self.batches, self._counters)
        return Timed(made.block.seconds / made.block.batches, made.stolen)


def measure_observer_effect(name: str, build: Callable[[], dict[str, Any]], *, most_pairs: int) -> ObserverEffect:
    """Alternate plain and staged blocks until the interval of their ratio is narrow.

    Args:
        name: Of the job, for people.
        build: Its fields, anew at each call; no plain loop may come to the end of its dataset.
        most_pairs: At which it ends in any case.
    """
    ratios: list[float] = []
    left_out: list[float] = []
    with _staged(build()) as staged:
        plain, machine = PlainLoop(build()), RepeatPolicy(time.perf_counter)
        # Each comes first in every other pair, so that drift does for both what it does.
        for plain_first in itertools.cycle((True, False)):
            if plain_first:
                of_plain = plain.run_block(staged.batches)
                of_staged = staged.run_block()
            else:
                of_staged = staged.run_block()
                of_plain = plain.run_block(staged.batches)
            pair = (of_plain, of_staged)
            if len(left_out) < most_pairs and any(machine.wanted(staged.raw, block.stolen) for block in pair):
                left_out.append(max(block.stolen.share for block in pair))
                continue
            for block in pair:
                machine.keep(staged.raw, block.stolen)
            ratios.append(of_staged.seconds_per_batch / of_plain.seconds_per_batch)
            if enough_pairs(ratios, fewest=min(MIN_PAIRS, most_pairs), most=most_pairs, precision=PRECISION):
                break
        del plain  # its workers stop before those of the staged job
    return ObserverEffect(name, tuple(ratios), mean_ratio(ratios), tuple(left_out))


@contextmanager
def _staged(fields: dict[str, Any]) -> Iterator[StagedRaw]:
    with staged_job(fields) as (bench, ladder):
        counters, workers = Counters(), bench.loader.workers
        counters.reads.start(workers)
        with counters.utilisation.watching(workers, torch.device("cpu")):
            yield StagedRaw(bench, ladder, counters)


def mean_ratio(ratios: Sequence[float]) -> Interval:
    """The geometric mean of the ratios with its 95 % interval by Student's t, on the log scale."""
    logs = [math.log(ratio) for ratio in ratios]
    mean = statistics.fmean(logs)
    half = math.inf
    if len(logs) > 1:
        error = statistics.stdev(logs) / math.sqrt(len(logs))
        half = float(stats.t.ppf(0.975, len(logs) - 1)) * error
    return Interval(math.exp(mean), math.exp(mean - half), math.exp(mean + half))


def enough_pairs(ratios: Sequence[float], *, fewest: int, most: int, precision: float) -> bool:
    """Return True if the interval of the mean ratio is narrow enough, or the number of pairs is at its limit.

    Args:
        ratios: Of the pairs so far.
        fewest: Pairs that there have to be.
        most: Pairs that there may be.
        precision: Half the width of the interval that is wanted.
    """
    if len(ratios) < fewest:
        return False
    found = mean_ratio(ratios)
    return len(ratios) >= most or (found.high - found.low) / 2 <= precision


def check_observer(effects: Sequence[ObserverEffect]) -> Check:
    """The bar on the observer effect."""
    bounds = {effect: max(effect.ratio.low, effect.ratio.high, key=lambda end: abs(end - 1)) for effect in effects}
    worst = max(effects, key=lambda effect: abs(bounds[effect] - 1))
    missed = [effect for effect in effects if not effect.held]
    return Check(
        "observer effect: coupled raw against the user's own loop",
        "clearly within 2 %",
        f"{len(effects) - len(missed)} of {len(effects)}; {bounds[worst] - 1:+.1%} at the end of the widest interval",
        not missed,
        tuple(f"{effect.name}: {effect.ratio.low - 1:+.1%} to {effect.ratio.high - 1:+.1%}" for effect in missed),
    )


def observer_table(effects: Sequence[ObserverEffect]) -> str:
    """The ratios, in markdown."""
    rows = [
        (
            effect.name,
            str(len(effect.ratios)),
            effect.why_left_out,
            f"{effect.ratio.estimate:.3f}",
            f"{effect.ratio.low:.3f} – {effect.ratio.high:.3f}",
            "held" if effect.held else "**missed**",
        )
        for effect in effects
    ]
    return markdown_table(("pipeline", "pairs", "left out", "time diagnosed / plain", "95 % interval", ""), rows)
