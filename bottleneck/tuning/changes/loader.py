"""Changes to the arguments of the DataLoader, but for the number of workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bottleneck.job.loader_args import loader_argument_names
from bottleneck.job.pipeline import Pipeline
from bottleneck.results.tuning import Outcome
from bottleneck.tuning.change import Change, Here
from bottleneck.tuning.epochs import NO_WORKERS, starts_matter_not

_MOST_AHEAD = 16
_SOURCE = "https://docs.pytorch.org/docs/stable/data.html"


# --- prefetch_factor --------------------------------------------------------------------------------------


def _why_no_prefetch(here: Here) -> str | None:
    return None if here.loader.num_workers else NO_WORKERS


def _next_prefetch(here: Here, judged: Mapping[Any, Outcome]) -> int | None:
    doubled = 2 * (here.loader.prefetch_factor or 2)
    return doubled if doubled <= _MOST_AHEAD and doubled not in judged else None


def _prefetch(pipeline: Pipeline, value: int) -> Pipeline:
    return pipeline.replace(prefetch_factor=value)


# --- persistent_workers -----------------------------------------------------------------------------------


def _persistent(pipeline: Pipeline) -> Pipeline:
    return pipeline.replace(persistent_workers=True)


# --- pin_memory -------------------------------------------------------------------------------------------


def _why_not_pinned(here: Here) -> str | None:
    if here.device.type == "cpu":
        return "the job trains on the CPU, where nothing is copied to a device"
    return "the loader pins its batches already" if here.loader.pin_memory else None


def _pinned(pipeline: Pipeline) -> Pipeline:
    return pipeline.replace(pin_memory=True)


# --- in_order ---------------------------------------------------------------------------------------------


def _why_not_out_of_order(here: Here) -> str | None:
    if "in_order" not in loader_argument_names():
        return "this PyTorch has no in_order; 2.6 brings it"
    if here.loader.num_workers < 2:
        return "the loader has fewer than two workers"
    return None if getattr(here.loader, "in_order", True) else "batches come as they are made already"


def _out_of_order(pipeline: Pipeline) -> Pipeline:
    return pipeline.replace(in_order=False)


CHANGES = (
    Change(
        "prefetch_factor", _prefetch, alters="memory", line="DataLoader(..., prefetch_factor={value})",
        why_not=_why_no_prefetch, next_value=_next_prefetch, source=_SOURCE,
    ),
    Change(
        "pin_memory", _pinned, alters="memory",
        line="DataLoader(..., pin_memory=True)\nbatch = batch.to(device, non_blocking=True)",
        advice=("pin-memory", "non-blocking"), why_not=_why_not_pinned,
        source="https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html",
    ),
    Change(
        "in_order", _out_of_order, alters="order", line="DataLoader(..., in_order=False)",
        advice=("uneven-samples",), why_not=_why_not_out_of_order, source=_SOURCE,
    ),
    Change(
        "persistent_workers", _persistent, alters="memory", line="DataLoader(..., persistent_workers=True)",
        advice=("persistent-workers",), why_not=starts_matter_not, whole_epochs=True, source=_SOURCE,
    ),
)  # fmt: skip
