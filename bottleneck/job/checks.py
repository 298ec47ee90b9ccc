"""Checks of a description: each failure is one sentence that names the field, and shows a line that works."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from bottleneck.errors import PipelineError
from bottleneck.job.loader_args import check_loader_arguments, length_of
from bottleneck.job.pipeline import Pipeline
from bottleneck.job.step import device_of
from bottleneck.job.users_code import describe, quote, summary, why_not_called


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
    """Refuse empty datasets, and objects that PyTorch cannot load from.

    Raises:
        PipelineError: Not an instance of a dataset; or a map-style dataset of length 0, or without a required length.
    """
    _refuse_class("dataset", dataset)
    if isinstance(dataset, DataLoader):
        raise PipelineError("dataset is a DataLoader.", "Write Pipeline.from_loader(loader, model=model, ...) instead.")
    if isinstance(dataset, Mapping) and 0 not in dataset:
        keys = [quote(key) for key in list(dataset)[:4]]
        raise PipelineError(
            f"dataset is a mapping with the keys {', '.join(keys) or '(none)'}: one of its values is probably meant.",
            f"Write dataset=data[{keys[0] if keys else repr('train')}].",
        )
    if isinstance(dataset, IterableDataset):
        return  # its length is a promise of its author, in samples or batches, on which PyTorch does not rely
    if isinstance(dataset, str | bytes):
        raise PipelineError(
            f"dataset is text, {describe(dataset)}, and not a dataset.",
            "Write for example dataset=ImageFolder('data/train', transform).",
        )
    if not hasattr(dataset, "__getitem__"):
        raise PipelineError(
            f"dataset must have __getitem__ or be an IterableDataset, and is {describe(dataset)}.",
            "Write for example dataset=ImageFolder('data/train', transform).",
        )
    chosen = loader_args.get("sampler") is not None or loader_args.get("batch_sampler") is not None
    if _length(dataset, needed=not chosen) == 0:
        raise PipelineError(
            f"dataset is empty: the length of this {type(dataset).__name__} is 0.", "Check its path, split or filter."
        )


def _length(dataset: Any, *, needed: bool) -> int | None:
    """Return the length; None if there is none and none is needed."""
    try:
        return len(dataset)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if not needed and isinstance(error, TypeError | NotImplementedError):
            return None
        raise PipelineError(
            f"dataset has no length: len() of this {type(dataset).__name__} raised {summary(error)}.",
            "Let its __len__ return the number of samples, or choose the samples yourself with sampler=... .",
        ) from error


_EXAMPLES = {
    "model": "resnet18().",
    "loss_fn": "nn.CrossEntropyLoss().",
    "train_step": "step, with def step(batch): ...",
    "to_device": "move, with def move(batch, device): ...",
    "collate_fn": "collate, with def collate(samples): ...",
}
_CALLED_WITH = {
    "loss_fn": ("output", "target"),
    "train_step": ("batch",),
    "to_device": ("batch", "device"),
    "collate_fn": ("samples",),
}
"""Arguments, by position."""


def check_training(pipeline: Pipeline) -> None:
    """Refuse a model, loss, optimizer, train step or transfer that cannot be called.

    Raises:
        PipelineError: With the field's name.
    """
    if pipeline.model is None and pipeline.train_step is None:
        raise PipelineError(
            "The pipeline has neither model nor train_step, so there is no training to diagnose.",
            "Add model=model, loss_fn=loss_fn, optimizer=optimizer, or train_step=step.",
        )
    for name in _EXAMPLES:
        value = getattr(pipeline, name)
        if value is not None:
            # A train step may call the loss in any way.
            _check_callable(name, value, called=pipeline.train_step is None or name != "loss_fn")
    _check_optimizer(pipeline.optimizer, replaced=pipeline.train_step is not None)
    _check_augment(pipeline.augment)


_WORK_LATER = (inspect.isgeneratorfunction, inspect.isasyncgenfunction, inspect.iscoroutinefunction)


def _check_callable(name: str, value: Any, *, called: bool) -> None:
    if name in ("model", "loss_fn"):
        _refuse_class(name, value)
    problem = None
    if not callable(value):
        problem = f"{name} cannot be called: it is {describe(value)}"
    elif any(works_later(code) for code in (value, type(value).__call__) for works_later in _WORK_LATER):
        problem = f"{name} is a generator or coroutine function (yield, async def): calling it does no work"
    elif called and name in _CALLED_WITH and (inspect.isfunction(value) or inspect.ismethod(value)):
        why = why_not_called(value, _CALLED_WITH[name], follow_wrapped=False)
        problem = f"{name} cannot be called as {name}({', '.join(_CALLED_WITH[name])}): {why}" if why else None
    if problem is not None:
        raise PipelineError(f"{problem}.", f"Write {name}={_EXAMPLES[name]}")


def _refuse_class(name: str, value: Any) -> None:
    if isinstance(value, type):
        raise PipelineError(
            f"{name} is the class {value.__name__}, not an instance of it.", f"Write {name}={value.__name__}(...)."
        )


def _check_optimizer(optimizer: Any, *, replaced: bool) -> None:
    if optimizer is None:
        return
    _refuse_class("optimizer", optimizer)
    for method in ("step", "zero_grad"):
        if not callable(getattr(optimizer, method, None)):
            raise PipelineError(
                f"optimizer has no {method}(): it is {describe(optimizer)}.",
                "Write optimizer=torch.optim.SGD(model.parameters(), lr=0.1).",
            )
    if not replaced and why_not_called(optimizer.step):
        raise PipelineError(
            f"optimizer is {type(optimizer).__name__}, whose step needs a closure.",
            "Pass train_step=step, a function of one batch that calls optimizer.step(closure).",
        )


def _check_augment(augment: Any) -> None:
    paths = (augment,) if augment is None or isinstance(augment, str) else augment
    if not isinstance(paths, tuple | list | set | frozenset) or not all(
        path is None or (isinstance(path, str) and path.strip()) for path in paths
    ):
        raise PipelineError(
            f"augment must name one or several attributes of the dataset, not {describe(augment)}.",
            "Write augment='transform', or leave it out.",
        )


def check_fills_a_batch(loader: DataLoader[Any]) -> None:
    """Refuse a loader that never delivers a full batch, because it could not be measured; only lengths are read.

    Raises:
        PipelineError: There is no index, or fewer than `batch_size`.
    """
    if isinstance(loader.dataset, IterableDataset):
        return  # len(loader) would make the loader warn later
    batch_size, of_batches = loader.batch_size, loader.batch_size is None and loader.batch_sampler is not None
    samples = length_of(loader.batch_sampler if of_batches else loader.sampler)
    if samples == 0:
        raise PipelineError(
            "The sampler chooses no samples: its length is 0.", "Use a sampler or batch_sampler with indices."
        )
    if samples is not None and batch_size is not None and samples < batch_size:
        raise PipelineError(
            f"batch_size={batch_size} is never filled: an epoch has only {samples} samples.",
            f"Write batch_size={samples}, or use a larger dataset.",
        )
