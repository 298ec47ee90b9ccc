"""What watching costs: coupled raw blocks with and without the utilisation, in interleaved pairs on the same workers.

The planted pipelines' work lasts by the clock on the wall, which hides a little CPU time taken from it. One pipeline
here does a counted amount of work instead.

At the usual rate the cost disappears in the noise of a machine in any reasonable time. So samples are taken many times
as often, and what they cost together is divided among them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import Dataset

from benchmarks.checks import Check, markdown_table
from benchmarks.observer import enough_pairs, mean_ratio
from benchmarks.planted import find_planted
from benchmarks.staged import staged_job
from benchmarks.work import Work
from bottleneck.measure.bench import Bench, block_batches
from bottleneck.measure.ladder import Arm
from bottleneck.measure.usage.utilisation import INTERVAL_S, Utilisation
from bottleneck.measure.visit import Counters, visit
from bottleneck.results.records import Interval

TOLERANCE = 0.01
TIMES_AS_OFTEN = 20
"""How much more often than in a diagnosis samples are taken."""
PRECISION = 0.04
"""Half the interval of the ratio at which there are pairs enough: at the usual rate, two parts in a thousand."""
FEWEST_PAIRS, MOST_PAIRS, MOST_PAIRS_QUICK = 40, 160, 16
BLOCK_S = 0.25
"""Short, so that both of a pair meet the machine in the same state; as long as one interval of the watching."""
_LENGTH = 100_000
_ROUNDS = 100


class CountedWork(Dataset[torch.Tensor]):
    """Each sample takes the same arithmetic, some tenths of a millisecond of it."""

    def __len__(self) -> int:
        return _LENGTH

    def __getitem__(self, index: int) -> torch.Tensor:
        value = torch.full((64,), float(index))
        for _ in range(_ROUNDS):
            value = value * 0.999 + 1.0
        return value


def _wait_for_a_device(_batch: Any) -> None:
    Work("wait", 0.002).run()


def counted_pipeline() -> dict[str, Any]:
    """Fields of a pipeline whose workers compute all the time."""
    return {
        "dataset": CountedWork(), "train_step": _wait_for_a_device, "device": "cpu", "batch_size": 32,
        "num_workers": 2, "drop_last": True,
    }  # fmt: skip


WATCHED: tuple[tuple[str, Callable[[], dict[str, Any]]], ...] = (
    ("load_wait", lambda: find_planted("load_wait").build()),
    ("counted work in 2 workers", counted_pipeline),
)


@dataclass(frozen=True)
class EvidenceCost:
    """Time per batch of blocks that were watched `TIMES_AS_OFTEN`, over that of their neighbours."""

    name: str
    pairs: int
    ratio: Interval

    @property
    def cost(self) -> Interval:
        """What watching at the usual rate costs, as a share of the time per batch."""
        ratios = (self.ratio.estimate, self.ratio.low, self.ratio.high)
        return Interval(*((ratio - 1) / TIMES_AS_OFTEN for ratio in ratios))

    @property
    def held(self) -> bool:
        """Whether watching surely costs less than 1 %."""
        return self.cost.high < TOLERANCE


def measure_evidence_cost(name: str, fields: dict[str, Any], *, most_pairs: int = MOST_PAIRS) -> EvidenceCost:
    """Alternate watched blocks and others, until the interval of their ratio is narrow."""
    with staged_job(fields) as (bench, ladder):
        ratios = _ratios(bench, ladder.raw, most_pairs)
    return EvidenceCost(name, len(ratios), mean_ratio(ratios))


def _ratios(bench: Bench, raw: Arm, most_pairs: int) -> list[float]:
    bench.prepare(raw)
    trial = bench.measure(raw, 0, 4 * max(1, bench.loader.num_workers))
    batches = block_batches(raw, trial.seconds / trial.batches, BLOCK_S, bench.loader.num_workers)
    ratios: list[float] = []
    # Watched first in every other pair, so that drift does for both what it does.
    for watched_first in itertools.cycle((True, False)):
        order = (watched_first, not watched_first)
        seconds = {watched: _block_s(bench, raw, batches, watched=watched) for watched in order}
        ratios.append(seconds[True] / seconds[False])
        if enough_pairs(ratios, fewest=FEWEST_PAIRS, most=most_pairs, precision=PRECISION):
            return ratios
    raise AssertionError("a cycle has no end")


def _block_s(bench: Bench, raw: Arm, batches: int, *, watched: bool) -> float:
    """Seconds of a block, as the rounds measure it or without what they watch on the way."""
    if not watched:
        bench.prepare(raw)
        bench.settle(raw)
        return bench.measure(raw, 0, batches).seconds
    counters = Counters(utilisation=Utilisation(interval_s=INTERVAL_S / TIMES_AS_OFTEN))
    counters.reads.start(bench.loader.workers)
    with counters.utilisation.watching(bench.loader.workers, torch.device("cpu")):
        return visit(bench, raw, 0, batches, counters).block.seconds


def check_evidence_cost(costs: Sequence[EvidenceCost]) -> Check:
    """The bar on what watching costs."""
    worst = max(costs, key=lambda cost: cost.cost.high)
    return Check(
        "cost of the evidence: coupled raw watched against not watched",
        "surely under 1 %",
        f"at most {worst.cost.high:+.2%} ({worst.name})",
        all(cost.held for cost in costs),
    )


def evidence_cost_table(costs: Sequence[EvidenceCost]) -> str:
    """The ratios, in markdown."""
    rows = [
        (
            cost.name,
            str(cost.pairs),
            f"{cost.ratio.estimate:.3f}",
            f"{cost.ratio.low:.3f} – {cost.ratio.high:.3f}",
            f"{cost.cost.estimate:+.2%}",
            f"{cost.cost.low:+.2%} – {cost.cost.high:+.2%}",
            "held" if cost.held else "**missed**",
        )
        for cost in costs
    ]
    ratio = f"watched {TIMES_AS_OFTEN} times as often / not at all"
    return markdown_table(
        ("pipeline", "pairs", ratio, "95 % interval", "cost at the usual rate", "95 % interval", ""), rows
    )
