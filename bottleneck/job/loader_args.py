"""Arguments of a DataLoader: read them from a loader, check them, rebuild a loader with changes."""

from __future__ import annotations

import inspect
import multiprocessing
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, SequentialSampler
from torch.utils.data.dataloader import default_collate as _default_collate
from torch.utils.data.dataloader import default_convert as _default_convert

from bottleneck.errors import PipelineError
from bottleneck.job.loader_classes import is_pytorchs
from bottleneck.job.target import PLAIN_FIELDS, Field, check_field
from bottleneck.job.torch_loading import held_iterators
from bottleneck.job.users_code import quote

WORKER_ONLY_DEFAULTS: Mapping[str, Any] = {
    "prefetch_factor": None,
    "persistent_workers": False,
    "multiprocessing_context": None,
    "timeout": 0,
}
"""Arguments that PyTorch accepts only with worker processes, and their defaults."""


def _is_iterable(value: Any) -> bool:
    return hasattr(value, "__iter__") and not isinstance(value, type | str)


_OBJECT_FIELDS = {
    "sampler": Field("a sampler or another iterable of indices", "RandomSampler(dataset)", _is_iterable, optional=True),
    "batch_sampler": Field(
        "an iterable of lists of indices",
        "BatchSampler(RandomSampler(dataset), batch_size=64, drop_last=True)",
        _is_iterable,
        optional=True,
    ),
    "worker_init_fn": Field(
        "a function of the worker's number",
        "seed_worker, with def seed_worker(worker_id): pass",
        callable,
        optional=True,
    ),
    "generator": Field(
        "a torch.Generator",
        "torch.Generator().manual_seed(0)",
        lambda value: isinstance(value, torch.Generator),
        optional=True,
    ),
}
"""Arguments that PyTorch checks only when it loads."""
_CHOOSERS_OF_SAMPLES = ("batch_size", "drop_last", "sampler", "shuffle", "batch_sampler", "dataset")


@lru_cache(maxsize=1)
def loader_argument_names() -> tuple[str, ...]:
    """Return the names of the DataLoader arguments of the installed PyTorch, without dataset and collate_fn."""
    parameters = inspect.signature(DataLoader.__init__).parameters
    return tuple(name for name in parameters if name not in ("self", "dataset", "collate_fn"))


def is_default_collate(collate_fn: Any) -> bool:
    """Return True for PyTorch's default, which it uses if no `collate_fn` is given."""
    return collate_fn is None or collate_fn is _default_collate or collate_fn is _default_convert


def read_loader_arguments(loader: DataLoader[Any]) -> dict[str, Any]:
    """Return the arguments that describe an existing DataLoader, without dataset and collate_fn.

    `DataLoader` accepts them together: either `batch_sampler`, or `batch_size`, `drop_last` and (for map-style
    datasets) `sampler`.
    """
    names = [n for n in loader_argument_names() if n not in ("shuffle", "batch_sampler", "sampler")]
    arguments = {name: getattr(loader, name) for name in names if hasattr(loader, name)}
    if loader.batch_size is None and loader.batch_sampler is not None:
        del arguments["batch_size"], arguments["drop_last"]
        arguments["batch_sampler"] = loader.batch_sampler
    elif not isinstance(loader.dataset, IterableDataset):
        arguments["sampler"] = loader.sampler
    return arguments


def check_loader_arguments(arguments: Mapping[str, Any]) -> None:
    """Refuse values of a wrong type or range, in a sentence that names the argument.

    Raises:
        PipelineError: A value that PyTorch would refuse later, or silently misinterpret.
    """
    for name, field in {**PLAIN_FIELDS, **_OBJECT_FIELDS}.items():
        if name in arguments:
            check_field(name, arguments[name], field)
    if arguments.get("num_workers", 0):
        return
    for name, default in WORKER_ONLY_DEFAULTS.items():
        if arguments.get(name, default) != default:
            raise PipelineError(
                f"{name}={quote(arguments[name])} needs worker processes, and num_workers is 0.",
                f"Write num_workers=4, or leave {name} out.",
            )


def build_loader(dataset: Any, collate_fn: Any, arguments: Mapping[str, Any]) -> DataLoader[Any]:
    """Return a new DataLoader; an error of PyTorch becomes a PipelineError."""
    try:
        return DataLoader(dataset, collate_fn=collate_fn, **arguments)
    except (ValueError, TypeError) as error:
        raise _refused_by_pytorch(error) from error


def rebuild_loader(loader: DataLoader[Any], changes: Mapping[str, Any]) -> DataLoader[Any]:
    """Return a DataLoader of the same class with the same attributes, except for the changes.

    The constructor of a subclass is not called, because subclasses change its signature: the instance's attributes
    are copied, and PyTorch's own part is initialised again.

    Raises:
        PipelineError: The changes contradict the loader, or PyTorch refuses them.
    """
    arguments = _changed_arguments(loader, changes)
    clone = loader.__class__.__new__(loader.__class__)
    state = dict(loader.__dict__)
    # DataLoader and some of its subclasses forbid assignments once this private flag is set.
    names = [f"_{base.__name__.lstrip('_')}__initialized" for base in type(loader).__mro__]
    flags = {name: state.pop(name) for name in names if name in state}
    clone.__dict__.update(state)
    try:
        DataLoader.__init__(clone, **arguments)
    except (ValueError, TypeError) as error:
        raise _refused_by_pytorch(error) from error
    clone.__dict__.update(flags)
    has_wrapped_batch_sampler = loader.batch_size is not None and type(loader.batch_sampler) is not BatchSampler
    if has_wrapped_batch_sampler and not any(name in changes for name in _CHOOSERS_OF_SAMPLES):
        object.__setattr__(clone, "batch_sampler", loader.batch_sampler)
    for name in held_iterators(loader):
        # Loaders that keep their workers alive by keeping an iterator must not share it with the clone.
        object.__setattr__(clone, name, DataLoader.__iter__(clone))
    return clone


def length_of(value: Any) -> int | None:
    """Return the length of a dataset or a sampler; None if it has none, or fails."""
    try:
        return len(value)
    except Exception:  # noqa: BLE001 - the user's code, whose result is optional here
        return None


def _changed_arguments(loader: DataLoader[Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    arguments = read_loader_arguments(loader)
    if "batch_sampler" in arguments and "batch_sampler" not in changes:
        clash = next((n for n in ("batch_size", "shuffle", "sampler", "drop_last") if n in changes), None)
        if clash is not None:
            raise PipelineError(
                f"{clash} cannot be replaced: the loader's own batch_sampler decides it.",
                "Replace batch_sampler instead, or build the DataLoader with batch_size and sampler.",
            )
    if "batch_sampler" in changes:
        for name in ("batch_size", "drop_last", "sampler"):
            arguments.pop(name, None)
    elif "shuffle" in changes and "sampler" not in changes:
        arguments.pop("sampler", None)
    elif "dataset" in changes and "sampler" not in changes:
        _follow_dataset(arguments)
    collate_fn = None if is_default_collate(loader.collate_fn) else loader.collate_fn
    arguments.update(dataset=loader.dataset, collate_fn=collate_fn)
    arguments.update(changes)
    if isinstance(arguments["dataset"], IterableDataset):
        arguments.pop("sampler", None)
    return without_worker_arguments(arguments, changes)


def _follow_dataset(arguments: dict[str, Any]) -> None:
    """Drop PyTorch's own samplers, which know the length of the dataset that is replaced."""
    sampler: Any = arguments.get("sampler")
    if is_pytorchs(sampler, SequentialSampler):
        del arguments["sampler"]
    elif is_pytorchs(sampler, RandomSampler) and not sampler.replacement and sampler._num_samples is None:
        del arguments["sampler"]
        arguments["shuffle"] = True


def without_worker_arguments(arguments: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments without those that need workers, if a change to `num_workers=0` has made them invalid."""
    if arguments.get("num_workers", 0) != 0 or "num_workers" not in changes:
        return dict(arguments)
    return {n: v for n, v in arguments.items() if n not in WORKER_ONLY_DEFAULTS or n in changes}


def _refused_by_pytorch(error: Exception) -> PipelineError:
    return PipelineError(
        f"PyTorch's DataLoader does not accept these arguments together: {str(error).rstrip('.')}.",
        "Pipeline takes the same arguments as DataLoader(...): change the one that is named.",
    )


def default_start_method() -> str:
    """Return the start method of workers if a loader has no context."""
    # Without allow_none it would be fixed for the user's own code.
    return multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]


def start_method_of(loader: Any) -> str:
    """Return the start method of a DataLoader's workers."""
    context = loader.multiprocessing_context
    chosen = context.get_start_method(allow_none=True) if context is not None else None
    return str(chosen or default_start_method())
