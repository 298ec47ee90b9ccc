"""What cannot be run is refused here, in one sentence that names the field and shows a line that works."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from bottleneck.errors import PipelineError
from bottleneck.job.loader_args import check_loader_arguments
from bottleneck.job.pipeline import Pipeline
from bottleneck.job.step import device_of
from bottleneck.job.users_code import describe, quote, said_by, summary


def check(pipeline: Pipeline) -> None:
    """Refuse a description that cannot be run, before any work is done for it.

    Raises:
        PipelineError: With the field's name and a line that works.
    """
    check_dataset(pipeline.dataset, pipeline.loader_args)
    check_training(pipeline)
    if pipeline.loader is None:
        check_loader_arguments(pipeline.loader_args)
    device_of(pipeline)
    check_fills_a_batch(pipeline.make_loader())


def check_dataset(dataset: Any, loader_args: Mapping[str, Any]) -> None:
    """Refuse what PyTorch cannot load from, and what is empty.

    Raises:
        PipelineError: Not an instance of a dataset, or, of map style, without a length where one is needed or of
            length 0.
    """
    _check_kind_of_dataset(dataset)
    if isinstance(dataset, IterableDataset):
        return  # its length is a promise of its author's, in samples or in batches, that PyTorch does not rely on
    length = _length(dataset, needed=_needs_length(loader_args))
    if length == 0:
        raise PipelineError(
            f"dataset is empty: the length of this {type(dataset).__name__} is 0.",
            "Give one with samples, for example dataset=ImageFolder('data/train', transform), "
            "and check its path, split or filter.",
        )


def _check_kind_of_dataset(dataset: Any) -> None:
    if dataset is None:
        raise PipelineError("dataset is None.", "Write dataset=train_set.")
    if isinstance(dataset, type):
        raise PipelineError(
            f"dataset is the class {dataset.__name__}, not an instance of it.",
            f"Write dataset={dataset.__name__}(...).",
        )
    if isinstance(dataset, DataLoader):
        raise PipelineError("dataset is a DataLoader.", "Write Pipeline.from_loader(loader, model=model, ...) instead.")
    if isinstance(dataset, str | bytes):
        raise PipelineError(
            f"dataset is the text {dataset[:60]!r}, not a dataset.",
            "Write for example dataset=ImageFolder('data/train', transform).",
        )
    if isinstance(dataset, Mapping) and 0 not in dataset:
        keys = ", ".join(quote(key) for key in list(dataset)[:4])
        first = next(iter(dataset), "train")
        raise PipelineError(
            f"dataset is a mapping with the keys {keys or '(none)'}: one of its values is probably meant.",
            f"Write dataset=data[{quote(first)}].",
        )
    if isinstance(dataset, IterableDataset) or hasattr(dataset, "__getitem__"):
        return
    if isinstance(dataset, Iterable):
        raise PipelineError(
            f"dataset is a {type(dataset).__name__}, which can be iterated but is no IterableDataset.",
            "Let its class inherit from torch.utils.data.IterableDataset.",
        )
    raise PipelineError(
        f"dataset is a {type(dataset).__name__}, which has neither __getitem__ nor __iter__.",
        "Give a torch.utils.data.Dataset, for example dataset=TensorDataset(images, labels).",
    )


def _needs_length(loader_args: Mapping[str, Any]) -> bool:
    chosen = loader_args.get("sampler") is not None or loader_args.get("batch_sampler") is not None
    return not chosen


def _length(dataset: Any, *, needed: bool) -> int | None:
    """The length; None if there is none and none is needed."""
    try:
        return len(dataset)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        lacks = isinstance(error, NotImplementedError) or not hasattr(type(dataset), "__len__")
        if not needed and (lacks or isinstance(error, TypeError)):
            return None
        if lacks:
            raise PipelineError(
                f"dataset has no length: len() of this {type(dataset).__name__} is not possible.",
                "Define its __len__, or choose the samples yourself with sampler=... .",
            ) from error
        raise PipelineError(
            f"dataset has no length: len() of this {type(dataset).__name__} raised {summary(error)}.",
            "Let its __len__ return the number of samples.",
        ) from error


def check_training(pipeline: Pipeline) -> None:
    """Refuse a model, loss, optimizer, train step or transfer that cannot be called.

    Raises:
        PipelineError: With the field's name.
    """
    if pipeline.model is None and pipeline.train_step is None:
        raise PipelineError(
            "The pipeline has no model and no train_step, so there is no training to diagnose.",
            "Add model=model, loss_fn=loss_fn, optimizer=optimizer, or train_step=step.",
        )
    for name in ("model", "loss_fn", "train_step", "to_device", "collate_fn"):
        _check_callable(name, getattr(pipeline, name))
    for name in ("train_step", "to_device", "collate_fn", *(() if pipeline.train_step is not None else ("loss_fn",))):
        _check_parameters(name, getattr(pipeline, name))
    _check_optimizer(pipeline.optimizer, replaced=pipeline.train_step is not None)
    _check_augment(pipeline.augment)


_INSTANCES = {"model": "resnet18()", "loss_fn": "nn.CrossEntropyLoss()"}
_FUNCTIONS = {
    "loss_fn": "loss(output, target)",
    "train_step": "step(batch)",
    "to_device": "move(batch, device)",
    "collate_fn": "collate(samples)",
}
"""Examples, each with what the function is called with, by position."""


def _write_function(name: str) -> str:
    return f"Write {name}={_FUNCTIONS[name].partition('(')[0]}, with def {_FUNCTIONS[name]}: ..."


def _check_callable(name: str, value: Any) -> None:
    if value is None:
        return
    if isinstance(value, type) and name in ("model", "loss_fn"):
        raise PipelineError(
            f"{name} is the class {value.__name__}, not an instance of it.",
            f"Write {name}={value.__name__}(...).",
        )
    remedy = f"Write {name}={_INSTANCES[name]}." if name in _INSTANCES else _write_function(name)
    if not callable(value):
        raise PipelineError(f"{name} cannot be called: it is {describe(value)}.", remedy)
    kind = _kind_of_late_work(value)
    if kind is not None:
        raise PipelineError(f"{name} is {kind}, so that calling it does none of its work.", remedy)


def _kind_of_late_work(function: Any) -> str | None:
    """What a callable is that only returns something whose work is done later; None for any other."""
    while isinstance(function, partial):
        function = function.func
    for code in (function, type(function).__call__):
        if inspect.isgeneratorfunction(code) or inspect.isasyncgenfunction(code):
            return "a generator function (it has a yield)"
        if inspect.iscoroutinefunction(code):
            return "a coroutine function (async def)"
    return None


def _check_parameters(name: str, value: Any) -> None:
    """Refuse a function that cannot be called with what it is given; of other callables that is unknown."""
    if not (inspect.isfunction(value) or inspect.ismethod(value)):
        return
    given = _FUNCTIONS[name].partition("(")[2].rstrip(")")
    try:
        inspect.signature(value, follow_wrapped=False).bind(*given.split(", "))
    except TypeError as error:
        message = f"{name} cannot be called as {name}({given}): {said_by(error)}."
        raise PipelineError(message, _write_function(name)) from error


def _check_optimizer(optimizer: Any, *, replaced: bool) -> None:
    if optimizer is None:
        return
    example = "Write optimizer=torch.optim.SGD(model.parameters(), lr=0.1)."
    if isinstance(optimizer, type):
        raise PipelineError(f"optimizer is the class {optimizer.__name__}, not an instance of it.", example)
    for method in ("step", "zero_grad"):
        if not callable(getattr(optimizer, method, None)):
            raise PipelineError(f"optimizer has no {method}(): it is {describe(optimizer)}.", example)
    if not replaced and _needs_closure(optimizer):
        raise PipelineError(
            f"optimizer is {type(optimizer).__name__}, whose step needs a closure.",
            "Pass train_step=step, a function of one batch that calls optimizer.step(closure).",
        )


def _needs_closure(optimizer: Any) -> bool:
    try:
        parameters = inspect.signature(optimizer.step).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(
        p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
        for p in parameters
    )


def _check_augment(augment: Any) -> None:
    paths = (augment,) if augment is None or isinstance(augment, str) else augment
    good = isinstance(paths, tuple | list | set | frozenset) and all(
        path is None or (isinstance(path, str) and path.strip()) for path in paths
    )
    if not good:
        raise PipelineError(
            f"augment must name one or several attributes of the dataset, not {describe(augment)}.",
            "Write augment='transform', or leave it out.",
        )


def check_fills_a_batch(loader: DataLoader[Any]) -> None:
    """Refuse a loader that never delivers a full batch: nothing in it could be measured. It is asked for lengths only.

    Raises:
        PipelineError: No index at all, or fewer than `batch_size`.
    """
    samples = _samples_per_epoch(loader)
    batch_size = loader.batch_size
    if samples == 0:
        raise PipelineError(
            "The sampler chooses no samples: its length is 0.",
            "Give a sampler or batch_sampler with indices.",
        )
    if samples is not None and batch_size is not None and samples < batch_size:
        never_filled = f"batch_size={batch_size} is never filled: there are only {samples} samples in an epoch"
        if loader.drop_last:
            raise PipelineError(
                f"{never_filled}, and drop_last=True drops them.",
                f"Write batch_size={max(1, samples // 2)}, or give a larger dataset.",
            )
        raise PipelineError(
            f"{never_filled}, which make one partial batch.",
            f"Write batch_size={samples}, which gives the same batches, or give a larger dataset.",
        )


def _samples_per_epoch(loader: DataLoader[Any]) -> int | None:
    """Samples, or batches of an own batch_sampler; None where that is unknown."""
    # len(loader) is not asked: on an iterable dataset it leaves a note in the loader that later warns.
    if isinstance(loader.dataset, IterableDataset):
        return None
    own = loader.batch_size is None and loader.batch_sampler is not None
    source: Any = loader.batch_sampler if own else loader.sampler
    try:
        return len(source)
    except Exception:  # noqa: BLE001 - a sampler's length is asked for out of interest only; nothing needs it
        return None
