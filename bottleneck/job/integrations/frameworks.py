"""What describing the jobs of training frameworks has in common. None of them is imported: they come by hand."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.utils.data import BatchSampler, DataLoader

from bottleneck.errors import BottleneckError, PipelineError
from bottleneck.job.loader_arguments import build_loader, read_loader_arguments
from bottleneck.job.safe_repr import summary

LIGHTNING = ("lightning", "pytorch_lightning")


def is_from(cls: type, packages: tuple[str, ...]) -> bool:
    """Whether a class is defined in one of these top-level packages."""
    return cls.__module__.partition(".")[0] in packages


def is_a(value: Any, packages: tuple[str, ...], name: str) -> bool:
    """Whether a class of this name, from one of these packages, is among an object's classes."""
    return any(cls.__name__ == name and is_from(cls, packages) for cls in type(value).__mro__)


def describe_value(value: Any) -> str:
    """What was given instead, for a sentence."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return "None" if value is None else f"a {type(value).__name__}"


def refuse_dispatched(loader: Any) -> None:
    """Refuse the loader of accelerate's whose batches one process loads for all.

    Raises:
        PipelineError: It is one.
    """
    if is_a(loader, ("accelerate",), "DataLoaderDispatcher"):
        raise PipelineError(
            "One process loads the batches of all ranks (dispatch_batches), and a diagnosis runs a loader on each.",
            "Let each rank load its own, by DataLoaderConfiguration(dispatch_batches=False).",
        )


def call_users_code(call: Callable[[], Any], what: str, remedy: str) -> Any:
    """What a call gives; what the user's code raises becomes one sentence.

    Raises:
        PipelineError: It raised.
    """
    try:
        return call()
    except BottleneckError:
        raise
    except Exception as error:
        raise PipelineError(f"{what} raised {summary(error)}.", remedy) from error


def the_only_loader(found: Any, what: str, call: str) -> DataLoader[Any]:
    """The DataLoader that a framework's hook returned.

    Args:
        found: What it returned.
        what: The hook, for messages.
        call: A line that works with one loader.

    Raises:
        PipelineError: Several loaders, or something else.
    """
    inner = getattr(found, "base_dataloader", found)  # as accelerate wraps them
    if isinstance(inner, DataLoader):
        return inner if inner is found else _as_it_was_written(inner)
    several = getattr(inner, "iterables", inner) if is_a(inner, LIGHTNING, "CombinedLoader") else inner
    if isinstance(several, list | tuple | dict):
        raise PipelineError(
            f"{what} gives {len(several)} loaders at once, and a diagnosis looks at one.",
            f"Give the one of interest: {call}.",
        )
    raise PipelineError(
        f"{what} gives {describe_value(found)}, not a torch.utils.data.DataLoader.", f"Give a DataLoader: {call}."
    )


def _as_it_was_written(loader: DataLoader[Any]) -> DataLoader[Any]:
    """A loader with the `batch_size` and `sampler` that accelerate has put into a `batch_sampler`."""
    batches = loader.batch_sampler
    if type(loader) is not DataLoader or type(batches) is not BatchSampler or loader.batch_size is not None:
        return loader
    arguments = read_loader_arguments(loader)
    del arguments["batch_sampler"]
    arguments |= {"batch_size": batches.batch_size, "sampler": batches.sampler, "drop_last": batches.drop_last}
    return build_loader(loader.dataset, loader.collate_fn, arguments)


@contextmanager
def random_numbers_kept() -> Iterator[None]:
    """Leave the random numbers of Python, numpy and torch as they were: setting a job up may draw some."""
    python, numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=()):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)
