"""Changes that compile the model by `torch.compile` in two modes, or record it as CUDA graphs."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from typing import Any

import torch
from torch import nn

from bottleneck.errors import MeasurementError
from bottleneck.job.pipeline import Pipeline
from bottleneck.job.replaced import replaced
from bottleneck.job.step import with_step_options
from bottleneck.measure.rounds.new_shapes import graphs_compiled
from bottleneck.results.tuning import Outcome
from bottleneck.tuner.change import Change, Context, Settings
from bottleneck.tuner.changes.step import ProcessSetting, Wrapper, no_cuda, no_default_step, parts_of_model

_NAME = "compile"
_COMPILING_S = 45.0
_RECORDING_S = 50.0
"""Larger, so that recording is tried after compiling, which can do the same and more."""
_MAX_IN_A_ROW = 4
"""Consecutive calls that compile; two are usual, the second one for dynamic shapes."""
_DEFAULT = "default"
_REDUCED = "reduce-overhead"
_COMPILING_CALLS = 16
"""First calls, in which nearly everything is compiled."""
_MAX_GRAPHS = 256
"""Limit of compiled graphs of a function, enough for all variants."""


class _Watched:
    """Compiled code, which is given up if each call recompiles it.

    Raises:
        MeasurementError: Each call recompiles it.
    """

    has_pools = False
    """True if captured graphs keep device memory until the compiler is reset."""

    def __init__(self, function: Callable[..., Any], mode: str) -> None:
        self.mode = mode
        self.calls = 0
        self._in_a_row = 0
        self._compiled: Callable[..., Any] = torch.compile(function, mode=mode)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        before = graphs_compiled()
        with _room_to_compile() if self.calls < _COMPILING_CALLS else nullcontext():
            result = self._compiled(*arguments, **keywords)
        self.calls += 1
        _Watched.has_pools |= self.mode == _REDUCED
        self._in_a_row = self._in_a_row + 1 if graphs_compiled() > before else 0
        if self._in_a_row >= _MAX_IN_A_ROW:
            raise MeasurementError(
                "The model is recompiled at each step.",
                "Use batches of one shape, and remove values from its forward that differ from step to step.",
            )
        return result


def _room_to_compile() -> AbstractContextManager[None]:
    """Raise the limit of graphs per function, which all variants share; beyond it code silently runs uncompiled."""
    from torch._dynamo import config  # takes a second

    patched: AbstractContextManager[None] = config.patch(cache_size_limit=_MAX_GRAPHS)
    return patched


def release_pools(kept: Settings) -> None:
    """Release the memory of captured graphs, unless compiled code is kept."""
    if _Watched.has_pools and not any(setting.change.name == _NAME for setting in kept):
        with suppress(RuntimeError):  # if the device is unusable
            torch.compiler.reset()
        _Watched.has_pools = False


# --- a model in the default train step ----------------------------------------------------------------------


class _Compiled(Wrapper):
    captures = "compiled"

    def __init__(self, inner: nn.Module, mode: str) -> None:
        super().__init__(inner)
        self.call = _Watched(inner, mode)

    def __deepcopy__(self, memo: dict[int, Any]) -> _Compiled:
        # Compiled code belongs to one module.
        return _Compiled(copy.deepcopy(self.inner, memo), self.call.mode)

    def forward(self, *arguments: Any, **keywords: Any) -> Any:
        """Return the module's output."""
        return self.call(*arguments, **keywords)


# --- a model in a train step of the user or of a framework --------------------------------------------------


@contextmanager
def _called_compiled(model: nn.Module, call: _Watched) -> Iterator[None]:
    """Run compiled code for calls of the model inside the context, as after `model.compile()`.

    Raises:
        MeasurementError: The model was not called.
    """
    calls = call.calls
    with replaced(model, "_compiled_call_impl", lambda _: call):
        yield
    if call.calls == calls:
        raise MeasurementError("The train step does not call the compiled model.", "Compile the module that it calls.")


def _compiled(pipeline: Pipeline, value: str) -> Pipeline:
    if pipeline.train_step is None:
        return pipeline.replace(model=_Compiled(pipeline.model, value))
    model = pipeline.model
    return with_step_options(pipeline, partial(_called_compiled, model, _Watched(model._call_impl, value)))


def _why_not_compiled(here: Context) -> str | None:
    model = here.pipeline.model
    if not isinstance(model, nn.Module):
        return "the pipeline has no torch.nn.Module as its model"
    if (other := _captured(model)) not in ("", _Compiled.captures):
        return f"the model is {other}"
    known = parts_of_model(model)
    already = any(type(m).__name__ == "OptimizedModule" or m._compiled_call_impl is not None for m in known)
    return "the model is compiled already" if already else None


def _mode_of(pipeline: Pipeline) -> str | None:
    """Return the mode in which an earlier change has compiled the model; None if none has."""
    calls = [module.call for module in parts_of_model(pipeline.model) if isinstance(module, _Compiled)]
    around = [c for c in pipeline._step_options.within if isinstance(c, partial) and c.func is _called_compiled]
    return next((call.mode for call in [*calls, *(context.args[1] for context in around)]), None)


def _next_mode(here: Context, judged: Mapping[Any, Outcome]) -> str | None:
    if _mode_of(here.pipeline) is None and _DEFAULT not in judged:
        return _DEFAULT
    # On a CPU there are no graphs to replay: both modes are the same.
    reduces = here.device.type == "cuda" and judged.get(_DEFAULT) != "failed" and _REDUCED not in judged
    return _REDUCED if reduces else None


def _captured(model: Any) -> str:
    """Return how another change wraps the whole model, such as `compiled`; empty if none does."""
    wrappers = [module for module in parts_of_model(model) if isinstance(module, Wrapper)]
    return next((wrapper.captures for wrapper in wrappers if wrapper.captures), "")


# --- CUDA graphs --------------------------------------------------------------------------------------------


class _Graphed(Wrapper):
    """Replays the recording of a module with the first batch; runs the module for batches of another shape.

    Raises:
        MeasurementError: The module takes arguments other than tensors.
    """

    captures = "recorded as CUDA graphs"

    def __init__(self, inner: nn.Module) -> None:
        super().__init__(inner)
        self._shapes: Any = None

    def __deepcopy__(self, memo: dict[int, Any]) -> _Graphed:
        # A recording belongs to the memory of one module.
        return _Graphed(copy.deepcopy(self.inner, memo))

    def forward(self, *tensors: Any, **keywords: Any) -> Any:
        """Return the module's output."""
        if keywords or not all(isinstance(tensor, torch.Tensor) for tensor in tensors):
            raise MeasurementError("The model takes arguments other than positional tensors.", "Record its parts.")
        shapes = [(tensor.shape, tensor.dtype) for tensor in tensors]
        if self._shapes is None:
            # Not registered as a submodule, because it has the same parameters.
            vars(self)["_recorded"] = _record(self.inner, tensors)
            self._shapes = shapes
        return vars(self)["_recorded"](*tensors) if shapes == self._shapes else self.inner(*tensors)


class _Passing(Wrapper):
    """Calls a module by position; its own `forward` is the one that torch replaces."""

    def forward(self, *tensors: torch.Tensor) -> Any:
        """Return the module's output."""
        return self.inner(*tensors)


@functools.cache
def _stream_for_recording(make: Callable[[int], Any], device: int) -> Any:
    """Return the only stream of a device on which this process records.

    On each stream that it first computes on, cuBLAS allocates a workspace, which it never releases: 65 MiB on an H100.
    """
    return make(device)


@contextmanager
def _recording_on_one_stream() -> Iterator[None]:
    """Make the first stream created inside the context the one for recording; torch would create one each time."""
    made: Any = torch.cuda.Stream

    def kept(*_: Any, **__: Any) -> Any:
        torch.cuda.Stream = made  # type: ignore[misc]  # the model may create its own streams
        return _stream_for_recording(made, torch.cuda.current_device())

    with ProcessSetting(lambda: made, partial(setattr, torch.cuda, "Stream"), kept)():
        yield


def _record(inner: nn.Module, tensors: tuple[torch.Tensor, ...]) -> Callable[..., Any]:
    # Calls of other threads to the driver meanwhile, such as pinning a batch, must not be errors.
    mode: dict[str, Any] = {"capture_error_mode": "thread_local"}
    record: Any = torch.cuda.make_graphed_callables
    if "capture_error_mode" in inspect.signature(record).parameters:
        record = partial(record, **mode)
    graph, put = torch.cuda.graph, partial(setattr, torch.cuda, "graph")
    with_mode = ProcessSetting(lambda: graph, put, partial(graph, **mode))
    samples = tuple(tensor.clone() for tensor in tensors)
    caches = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)  # tensors that a graph computes with must not be in a cache outside of it
    try:
        with with_mode(), _recording_on_one_stream():  # older versions of torch take no mode
            recorded: Callable[..., Any] = record(_Passing(inner), samples)
    finally:
        torch.set_autocast_cache_enabled(caches)
    return recorded


def _why_not_recorded(here: Context) -> str | None:
    if (why := no_cuda(here) or no_default_step(here)) is not None:
        return why
    made = _captured(here.pipeline.model)
    return f"the model is {made} already" if made else None


CHANGES = (
    Change(
        _NAME,
        _compiled,
        on="step",
        alters="nothing",
        line='model = torch.compile(model, mode="{value}")',
        advice=("faster-step",),
        why_not=_why_not_compiled,
        next_value=_next_mode,
        least_s=_COMPILING_S,
        step_only=True,
        source="https://docs.pytorch.org/docs/stable/generated/torch.compile.html",
    ),
    Change(
        "cuda_graphs",
        lambda pipeline: pipeline.replace(model=_Graphed(pipeline.model)),
        on="step",
        alters="memory",
        line="model = torch.cuda.make_graphed_callables(model, (images,))",
        why_not=_why_not_recorded,
        least_s=_RECORDING_S,
        step_only=True,
        source="https://docs.pytorch.org/docs/stable/generated/torch.cuda.make_graphed_callables.html",
    ),
)
