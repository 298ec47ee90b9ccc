"""What is diagnosed, as plain values for the result, and experiments by their names for people."""

from __future__ import annotations

from collections.abc import Iterator, Sized
from typing import Any

from torch.utils.data import DataLoader

from bottleneck.job.pipeline import Pipeline
from bottleneck.loader.switched import keeps_workers
from bottleneck.measure.ladder import Arm, Ladder

_SHOWN = {
    "coupled": "{}",
    "drained": "{} (drained)",
    "workers": "{} (workers alone)",
    "without": "without {}",
    "workers without": "without {} (loader alone)",
    "serving": "{} (the price of serving)",
}
"""For people: an experiment by its mode."""


def _name(value: Any) -> str | None:
    if value is None:
        return None
    return str(getattr(value, "__qualname__", type(value).__qualname__))


def _length(dataset: Any) -> int | None:
    try:
        return len(dataset) if isinstance(dataset, Sized) else None
    except (TypeError, NotImplementedError):
        return None


def describe_pipeline(pipeline: Pipeline, loader: DataLoader[Any], source: str | None = None) -> dict[str, Any]:
    """Describe a job by plain values, ready for JSON.

    Args:
        pipeline: The job.
        loader: Its loader.
        source: What it is taken from; None: not said.
    """
    context = loader.multiprocessing_context
    return {
        **({} if source is None else {"source": source}),
        **({} if getattr(type(loader.dataset), "own_loader", True) else {"loader": None}),
        "dataset": type(loader.dataset).__qualname__,
        "dataset_length": _length(loader.dataset),
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


def named_arms(ladder: Ladder) -> Iterator[tuple[str, str, Arm]]:
    """Yield name, mode and arm of every experiment; several may share an arm."""
    for rung in ladder.rungs:
        for mode, arm in (("coupled", rung.coupled), ("drained", rung.drained), ("workers", rung.workers)):
            if arm is not None:
                yield rung.name, mode, arm
    for stage, arm in ladder.without:
        yield stage, "without", arm
    for stage, arm in ladder.without_alone:
        yield stage, "workers without", arm
    if ladder.serving is not None:
        yield "raw", "serving", ladder.serving


def describe_arm(arm: Arm, ladder: Ladder | None) -> str:
    """Name an arm by the first experiment that it measures, such as `before_augment (drained)`."""
    named = named_arms(ladder) if ladder is not None else ()
    return next((_SHOWN[mode].format(name) for name, mode, each in named if each == arm), "raw")
