"""The description of a training job: its data, its loader, and what trains on the batches."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

import torch
from torch.utils.data import DataLoader

from bottleneck.errors import PipelineError, nearest
from bottleneck.job.loader_args import (
    build_loader,
    check_loader_arguments,
    is_default_collate,
    loader_argument_names,
    read_loader_arguments,
    rebuild_loader,
    without_worker_arguments,
)
from bottleneck.job.loader_classes import wrapped_by
from bottleneck.job.recipes import adopt
from bottleneck.job.step import StepOptions, model_device
from bottleneck.job.users_code import quote
from bottleneck.job.wrapping import unwrap


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Pipeline:
    """A training job for `diagnose`. Immutable; `replace` makes a changed one.

    Attributes:
        dataset: A map-style or iterable dataset.
        collate_fn: Merges samples into a batch; None: PyTorch's default.
        model: An nn.Module, or any callable.
        loss_fn: (output, target) -> loss; None if the model returns its loss.
        optimizer: None for forward and backward only.
        train_step: (batch on the device) -> anything; replaces model, loss_fn and optimizer. Pass these as well if the
            step uses them: their state is restored afterwards.
        to_device: (batch, device) -> batch; None: every tensor in any nested container is moved.
        device: None: the model's device, otherwise the accelerator if there is one, otherwise the CPU.
        augment: Attribute path or paths of the augmentation on the dataset; None: it is searched for.
        loader_args: Every other DataLoader argument, by its own name. Read-only.
        loader: The DataLoader passed to `from_loader`, or that in its wrapper; None otherwise.

    Raises:
        PipelineError: An unknown keyword. Values are judged by `check`, not here.
    """

    dataset: Any
    collate_fn: Callable[[Any], Any] | None
    model: Any
    loss_fn: Callable[[Any, Any], Any] | None
    optimizer: Any
    train_step: Callable[[Any], Any] | None
    to_device: Callable[[Any, Any], Any] | None
    device: Any
    augment: str | Iterable[str] | None
    loader_args: Mapping[str, Any]
    loader: DataLoader[Any] | None

    _step_options: ClassVar[StepOptions] = StepOptions()

    def __init__(
        self,
        *,
        dataset: Any,
        collate_fn: Callable[[Any], Any] | None = None,
        model: Any = None,
        loss_fn: Callable[[Any, Any], Any] | None = None,
        optimizer: Any = None,
        train_step: Callable[[Any], Any] | None = None,
        to_device: Callable[[Any, Any], Any] | None = None,
        device: Any = None,
        augment: str | Iterable[str] | None = None,
        **loader_args: Any,
    ) -> None:
        for name in loader_args:
            _refuse_unknown(name)
        adopted = adopt(dataset)
        if adopted is not dataset and "batch_size" not in loader_args:
            loader_args["batch_size"] = None  # such objects make their own batches
        self._set(
            dataset=adopted,
            collate_fn=collate_fn,
            model=model,
            loss_fn=loss_fn,
            optimizer=optimizer,
            train_step=train_step,
            to_device=to_device,
            device=device,
            augment=augment,
            loader_args=MappingProxyType(dict(loader_args)),
            loader=None,
        )

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        own = {name: getattr(self, name) for name in FIELD_NAMES}
        shown = [f"{n}={_short(v)}" for n, v in {**own, **self.loader_args}.items() if v is not None]
        return f"Pipeline({', '.join(shown)})"

    @classmethod
    def from_loader(
        cls,
        loader: DataLoader[Any],
        *,
        model: Any = None,
        loss_fn: Callable[[Any, Any], Any] | None = None,
        optimizer: Any = None,
        train_step: Callable[[Any], Any] | None = None,
        to_device: Callable[[Any, Any], Any] | None = None,
        device: Any = None,
        augment: str | Iterable[str] | None = None,
    ) -> Pipeline:
        """Describe a job that already has its DataLoader, which is left unchanged.

        The loader may be an object around a DataLoader whose `__iter__` works on each batch, such as timm's
        PrefetchLoader: its work is done before `to_device`, and measured with it.

        Raises:
            PipelineError: `loader` is not a DataLoader, nor wraps one.
        """
        wrapped = unwrap(loader, to_device)
        if wrapped is not None:
            device = _device_of_batches(loader, model) if device is None else device
            loader, to_device = wrapped
        loader = _unwrapped(loader)
        pipeline = cls(
            dataset=loader.dataset,
            collate_fn=None if is_default_collate(loader.collate_fn) else loader.collate_fn,
            model=model,
            loss_fn=loss_fn,
            optimizer=optimizer,
            train_step=train_step,
            to_device=to_device,
            device=device,
            augment=augment,
            **read_loader_arguments(loader),
        )
        pipeline._set(loader=loader)
        return pipeline

    @classmethod
    def from_mapping(cls, fields: Mapping[str, Any]) -> Pipeline:
        """Return a pipeline from a mapping with the names of its fields as keys.

        Raises:
            PipelineError: A key is not a field, or there is no dataset.
        """
        for name in fields:
            _refuse_unknown(name)
        if "dataset" not in fields:
            raise PipelineError("The pipeline has no dataset.", "Add dataset=train_set.")
        return cls(**fields)

    def make_loader(self) -> DataLoader[Any]:
        """Return the given DataLoader, or a new one from the fields.

        Raises:
            PipelineError: PyTorch refuses the arguments.
        """
        if self.loader is not None:
            return self.loader
        return build_loader(self.dataset, self.collate_fn, self.loader_args)

    def replace(self, **changes: Any) -> Pipeline:
        """Return the same pipeline with other values of some fields, DataLoader arguments included.

        A pipeline made from a loader gets a new DataLoader of the same class that keeps everything else.
        Setting `num_workers=0` drops arguments that need workers (prefetch_factor, timeout and the like).

        Raises:
            PipelineError: An unknown name, or a change that contradicts the loader.
        """
        changed = self._replaced(changes)
        if self._step_options is not Pipeline._step_options:
            changed._set(_step_options=self._step_options)
        return changed

    def _replaced(self, changes: Mapping[str, Any]) -> Pipeline:
        for name in changes:
            _refuse_unknown(name)
        own = {name: changes.get(name, getattr(self, name)) for name in FIELD_NAMES}
        if self.loader is None:
            others = {name: value for name, value in changes.items() if name not in FIELD_NAMES}
            return Pipeline(**own, **without_worker_arguments({**self.loader_args, **others}, changes))
        of_the_loader = ("dataset", "collate_fn", *loader_argument_names())
        loader_changes = {name: value for name, value in changes.items() if name in of_the_loader}
        loader = self.loader
        if loader_changes:
            check_loader_arguments({"num_workers": loader.num_workers, **loader_changes})
            loader = rebuild_loader(loader, loader_changes)
        return Pipeline.from_loader(loader, **{n: own[n] for n in FIELD_NAMES if n not in of_the_loader})


FIELD_NAMES = tuple(f.name for f in dataclasses.fields(Pipeline) if f.name not in ("loader_args", "loader"))
"""Fields of a pipeline that are not DataLoader arguments, with dataset and collate_fn."""


def field_names() -> tuple[str, ...]:
    """Return all arguments of `Pipeline(...)`, in the order in which they are shown."""
    return (*FIELD_NAMES, *loader_argument_names())


def _refuse_unknown(name: Any) -> None:
    if name in field_names():
        return
    if name in ("loader", "dataloader", "data_loader"):
        raise PipelineError(
            f"Pipeline has no field {quote(name)}.", "Write Pipeline.from_loader(loader, model=model, ...)."
        )
    near = nearest(name, field_names())
    remedy = f"Did you mean {near!r}?" if near else f"Its fields are {', '.join(field_names())}."
    raise PipelineError(f"Pipeline has no field {quote(name)}.", remedy)


def _device_of_batches(wrapper: Any, model: Any) -> str | None:
    """Return the CPU if a wrapper leaves its batches there, for a model that is there; otherwise None."""
    device, on = getattr(wrapper, "device", None), model_device(model)
    stays = isinstance(device, torch.device) and device.type == "cpu"
    return "cpu" if stays and (on is None or on.type == "cpu") else None


def _unwrapped(loader: Any) -> DataLoader[Any]:
    inner = wrapped_by(loader)
    candidate = adopt(loader) if inner is None else inner
    if isinstance(candidate, DataLoader):
        return candidate
    if candidate is not loader:
        return DataLoader(candidate, batch_size=None)
    raise PipelineError(
        f"Pipeline.from_loader needs a torch.utils.data.DataLoader, not a {type(loader).__name__}.",
        "For a dataset write Pipeline(dataset=dataset, batch_size=64, model=model, ...).",
    )


def _short(value: Any) -> str:
    shown = quote(value)
    return shown if len(shown) <= 60 and "\n" not in shown else f"<{type(value).__name__}>"
