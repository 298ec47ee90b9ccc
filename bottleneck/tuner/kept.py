"""Results of `bottleneck.workers`, kept in the user's cache folder by machine, dataset and settings."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader

from bottleneck._pydata import VERSION
from bottleneck.job.loader_args import length_of, start_method_of
from bottleneck.measure.machine.environment import memory_bytes, read_cpuinfo
from bottleneck.measure.machine.limits import usable_cores
from bottleneck.results.files import cache_folder

if TYPE_CHECKING:
    from bottleneck.tuner.workers import Workers

_FILE = "workers.json"
_MAX_ENTRIES = 256
_STEP_DIGITS = 2
"""Significant digits of a step's time in a key: it is never the same twice."""


def key_of(loader: DataLoader[Any], step_s: float | None) -> str:
    """Return the key of a result: machine, versions, class and length of the dataset, settings of the loader."""
    machine = (
        platform.node(),
        read_cpuinfo("model name", "hardware") or platform.processor(),
        usable_cores(),
        memory_bytes(),
        platform.python_version(),
        torch.__version__,
        VERSION,
    )
    settings = (
        loader.batch_size,
        loader.num_workers,
        loader.prefetch_factor,
        loader.pin_memory,
        loader.drop_last,
        getattr(loader, "in_order", True),
        start_method_of(loader),
    )
    parts = (loader.dataset, getattr(loader.dataset, "transform", None), loader.collate_fn, loader.sampler)
    names = tuple(f"{_class_of(part).__module__}.{_class_of(part).__qualname__}" for part in parts)
    step = None if step_s is None else f"{step_s:.{_STEP_DIGITS}g}"
    described = repr((machine, names, length_of(loader.dataset), settings, step))
    return hashlib.sha256(described.encode("utf-8", "backslashreplace")).hexdigest()[:32]


def _class_of(part: Any) -> Any:
    """Return a function itself, or the class of anything else."""
    return part if hasattr(part, "__qualname__") else type(part)


def read(key: str) -> Workers | None:
    """Return a result; None if there is none, or the file cannot be read."""
    from bottleneck.tuner.workers import Workers

    found = _entries().get(key)
    if not isinstance(found, dict):
        return None
    with suppress(TypeError, ValueError, AttributeError, KeyError):
        rates = {int(count): float(rate) for count, rate in found.pop("samples_per_s").items()}
        return Workers(**found, samples_per_s=rates, is_kept=True)
    return None


def write(key: str, found: Workers) -> None:
    """Keep a result, if the folder can be written."""
    fields = {name: value for name, value in vars(found).items() if name != "is_kept"}
    fields["samples_per_s"] = dict(found.samples_per_s)
    entries = {other: entry for other, entry in _entries().items() if other != key}
    latest = dict([*entries.items(), (key, fields)][-_MAX_ENTRIES:])
    path = cache_folder() / _FILE
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{_FILE}.{os.getpid()}")  # another process may be reading the file
        temporary.write_text(json.dumps(latest, indent=1), encoding="utf-8")
        temporary.replace(path)


def _entries() -> dict[str, Any]:
    with suppress(OSError, ValueError, RecursionError):
        entries = json.loads((cache_folder() / _FILE).read_text(encoding="utf-8"))
        if isinstance(entries, dict):
            return entries
    return {}
