"""Facts about the job as plain values, and its measured blocks, as a `Result` without conclusions."""

from __future__ import annotations

import datetime
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Generic, TypeVar

from torch.utils.data import DataLoader

from bottleneck._pydata import VERSION
from bottleneck.job.loader_args import length_of
from bottleneck.job.loader_classes import keeps_workers
from bottleneck.job.pipeline import Pipeline
from bottleneck.loader.modes import EXPERIMENTS
from bottleneck.measure.ladder import Arm, Ladder, Rung
from bottleneck.results.evidence import Evidence
from bottleneck.results.records import (
    NO_TRIALS,
    NO_VERDICT,
    SCHEMA_VERSION,
    Block,
    Cost,
    Experiment,
    Rank,
    Rate,
    Result,
    Tool,
    Warning,
    Without,
)

_SHOWN = {
    "coupled": "{}",
    "drained": "{} (drained)",
    "workers": "{} (workers alone)",
    "without": "without {}",
    "workers without": "without {} (loader alone)",
    "serving": "{} (the price of serving)",
}
"""Displayed name of an experiment by its mode."""
_NOT_MEASURED = Ladder(tuple(Rung(name, "the diagnosis ended before it was measured") for name in EXPERIMENTS), (), ())
"""Ladder before it is known what can be measured."""


def _name(value: Any) -> str | None:
    if value is None:
        return None
    return str(getattr(value, "__qualname__", type(value).__qualname__))


def describe_pipeline(pipeline: Pipeline, loader: DataLoader[Any], source: str | None = None) -> dict[str, Any]:
    """Describe a job by plain values, ready for JSON.

    Args:
        pipeline: The job.
        loader: Its loader.
        source: Its origin; None if not given.
    """
    context = loader.multiprocessing_context
    return {
        **({} if source is None else {"source": source}),
        **({} if getattr(type(loader.dataset), "own_loader", True) else {"loader": None}),
        "dataset": type(loader.dataset).__qualname__,
        "dataset_length": length_of(loader.dataset),
        "batch_size": loader.batch_size,
        "num_workers": loader.num_workers,
        "prefetch_factor": loader.prefetch_factor,
        "pin_memory": bool(loader.pin_memory),
        "persistent_workers": keeps_workers(loader),
        "drop_last": bool(loader.drop_last),
        "in_order": bool(getattr(loader, "in_order", True)),
        "start_method": getattr(context, "_name", None) if context is not None else None,
        "sampler": type(loader.sampler).__qualname__,
        "collate_fn": _name(pipeline.collate_fn),
        "model": _name(pipeline.model),
        "loss_fn": _name(pipeline.loss_fn),
        "optimizer": _name(pipeline.optimizer),
        "train_step": _name(pipeline.train_step),
        "to_device": _name(pipeline.to_device),
    }


def describe_arm(arm: Arm, ladder: Ladder) -> str:
    """Name an arm by the first experiment that it measures, such as `before_augment (drained)`."""
    return next((_SHOWN[mode].format(name) for name, mode, each in ladder.named() if each == arm), "raw")


A = TypeVar("A", bound=Hashable)


class Blocks(Generic[A]):
    """Blocks by arm, or by anything else that takes turns."""

    def __init__(self) -> None:
        self.blocks: dict[A, list[Block]] = {}

    def add(self, arm: A, block: Block) -> None:
        self.blocks.setdefault(arm, []).append(block)

    def exchange(self, arm: A, block: Block, better: Block) -> None:
        """Replace a block by one that was disturbed less."""
        self.blocks[arm] = [better if kept is block else kept for kept in self.blocks.get(arm, [])]


class Ledger(Blocks[Arm]):
    """All measurements so far."""

    def __init__(self, environment: Mapping[str, Any], pipeline: Mapping[str, Any]) -> None:
        super().__init__()
        self._created = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        self.environment = dict(environment)
        self.pipeline = dict(pipeline)
        self.ladder = _NOT_MEASURED
        self.evidence = Evidence()
        self._warnings: dict[Warning, None] = {}
        self.profile_files: Mapping[str, str] = {}
        self.traces: dict[str, bytes] = {}
        self.cost = Cost(0.0, 0, 0, 0)
        self.ranks: tuple[Rank, ...] = ()
        self.rank_trials = NO_TRIALS

    def note(self, **facts: Any) -> None:
        """Keep evidence, given by the names of its fields."""
        self.evidence = replace(self.evidence, **facts)

    def warn(self, warning: Warning) -> None:
        """Keep a reason not to trust a number, once."""
        self._warnings[warning] = None

    def warn_all(self, warnings: Iterable[Warning]) -> None:
        self._warnings.update(dict.fromkeys(warnings))

    def seconds_per_batch(self, arm: Arm) -> float | None:
        """Return the seconds per batch of an arm so far; None before its first block."""
        blocks = self.blocks.get(arm)
        return sum(block.seconds for block in blocks) / sum(block.batches for block in blocks) if blocks else None

    def _rate(self, arm: Arm | None) -> Rate | None:
        return Rate.of(self.blocks.get(arm, ())) if arm is not None else None

    def measurement(self) -> Result:
        """Return the measurements so far."""
        ladder, alone = self.ladder, dict(self.ladder.without_alone)
        experiments = tuple(
            Experiment(
                rung.name,
                rung.reason is None,
                rung.reason,
                self._rate(rung.coupled),
                self._rate(rung.drained),
                self._rate(rung.workers),
                self._rate(ladder.serving if rung.name == "raw" else None),
            )
            for rung in ladder.rungs
        )
        without = tuple(Without(stage, self._rate(arm), self._rate(alone.get(stage))) for stage, arm in ladder.without)
        return Result(
            schema_version=SCHEMA_VERSION,
            tool=Tool("torch-bottleneck", VERSION),
            created=self._created,
            environment=dict(self.environment),
            pipeline=dict(self.pipeline),
            experiments=experiments,
            without=without,
            stages=ladder.spans,
            verdict=NO_VERDICT,
            advice=(),
            evidence=self.evidence,
            warnings=tuple(self._warnings),
            cost=self.cost,
            ranks=self.ranks,
        )
