"""The process as it was: random numbers, torch's global flags, warnings, environment, signal handlers."""

from __future__ import annotations

import gc
import multiprocessing
import os
import random
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from types import ModuleType
from typing import Any

import numpy as np
import torch
import torch.multiprocessing
from torch.utils.data._utils import signal_handling

from bottleneck.measure.preserve.restoration import Notes, Setting, Snapshot, State

_PASSES = 3
_ACCELERATORS = ("cuda", "xpu", "mps")
_BACKENDS = (
    "fp32_precision",
    "cudnn.enabled",
    "cudnn.benchmark",
    "cudnn.benchmark_limit",
    "cudnn.deterministic",
    "cudnn.allow_tf32",
    "cuda.matmul.allow_tf32",
    "cuda.matmul.allow_fp16_reduced_precision_reduction",
    "cuda.matmul.allow_bf16_reduced_precision_reduction",
    # From torch 2.9 a finer family of flags, of which some are inherited from the general ones.
    "cudnn.fp32_precision",
    "cuda.matmul.fp32_precision",
    "cudnn.conv.fp32_precision",
    "cudnn.rnn.fp32_precision",
    "mkldnn.fp32_precision",
    "mkldnn.conv.fp32_precision",
    "mkldnn.matmul.fp32_precision",
)
"""Flags in `torch.backends`."""

_Getter = Callable[[], Any]
_Setter = Callable[[Any], object]


def _attribute(owner: object, path: str) -> tuple[_Getter, _Setter]:
    def get() -> Any:
        return attrgetter(path)(owner)

    def put(value: Any) -> None:
        holder, _, name = path.rpartition(".")
        setattr(attrgetter(holder)(owner) if holder else owner, name, value)

    return get, put


def _flags(device: torch.device) -> Iterator[tuple[str, _Getter, _Setter]]:
    """Name, getter and setter of torch's global flags and a few of Python's; the general ones first."""
    for kind in dict.fromkeys(("cpu", "cuda", device.type)):
        enable, set_dtype = partial(torch.set_autocast_enabled, kind), partial(torch.set_autocast_dtype, kind)
        yield f"autocast on {kind}", partial(torch.is_autocast_enabled, kind), enable
        yield f"the autocast dtype on {kind}", partial(torch.get_autocast_dtype, kind), set_dtype
    yield "the float32 matmul precision", torch.get_float32_matmul_precision, torch.set_float32_matmul_precision
    yield from ((f"torch.backends.{path}", *_attribute(torch.backends, path)) for path in _BACKENDS)
    yield "deterministic algorithms", _deterministic, _use_deterministic
    yield "the default dtype", torch.get_default_dtype, torch.set_default_dtype
    yield "the number of threads", torch.get_num_threads, torch.set_num_threads
    yield "grad mode", torch.is_grad_enabled, torch.set_grad_enabled
    yield "anomaly mode", torch.is_anomaly_enabled, torch.set_anomaly_enabled
    yield "the autocast cache", torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled
    get_sharing = torch.multiprocessing.get_sharing_strategy
    yield "the sharing strategy", get_sharing, torch.multiprocessing.set_sharing_strategy
    # The first process fixes an open choice, and the user's own set_start_method() would be refused after it.
    start_method = partial(multiprocessing.get_start_method, allow_none=True)
    yield "the start method of processes", start_method, partial(multiprocessing.set_start_method, force=True)
    yield "garbage collection", gc.isenabled, lambda enabled: gc.enable() if enabled else gc.disable()
    yield "warnings.showwarning", *_attribute(warnings, "showwarning")
    yield "warnings.formatwarning", *_attribute(warnings, "formatwarning")


def _deterministic() -> tuple[bool, bool]:
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


def _use_deterministic(saved: tuple[bool, bool]) -> None:
    torch.use_deterministic_algorithms(saved[0], warn_only=saved[1])


@dataclass
class Flags:
    """Flags that depend on each other: some cannot be read, or move again, until others are back."""

    settings: list[Setting]
    what: str = "flags of torch"

    def restore(self) -> None:
        """Put all back, in as many passes as it takes.

        Raises:
            RuntimeError: Some could not be; it names the first.
        """
        failure: tuple[str, Exception] | None = None
        for _ in range(_PASSES):
            failure = None
            for setting in self.settings:
                try:
                    setting.restore()
                except Exception as error:  # noqa: BLE001 - tried again in the next pass
                    failure = failure or (setting.what, error)
        if failure is not None:
            raise RuntimeError(f"{failure[0]}: {failure[1]}") from failure[1]


def keep_flags(device: torch.device) -> Flags:
    """Keep every flag that this torch has and can read."""
    kept: list[Setting] = []
    for flag in _flags(device):
        # Not in this version or build of torch, or refused beside a newer flag that is kept as well.
        with suppress(RuntimeError, AttributeError, TypeError, ValueError):
            kept.append(Setting(*flag))
    return Flags(kept)


def _accelerators(device: torch.device) -> list[tuple[str, ModuleType]]:
    """Accelerators in use: touching another one would start it, which takes memory on each device."""
    found = []
    for kind in dict.fromkeys((*_ACCELERATORS, device.type)):
        module = getattr(torch, kind, None)
        if kind == "cpu" or not isinstance(module, ModuleType) or not hasattr(module, "get_rng_state"):
            continue
        # Of old versions (2.4), torch.mps does not say so itself.
        sources: tuple[Any, ...] = (module, getattr(torch.backends, kind, None))
        is_available = next((source.is_available for source in sources if hasattr(source, "is_available")), None)
        if is_available is not None and not is_available():
            continue
        is_initialized = getattr(module, "is_initialized", lambda: True)
        if kind == device.type or is_initialized():
            found.append((kind, module))
    return found


def keep_random(device: torch.device, notes: Notes) -> list[Snapshot]:
    """Keep the global random number generators of Python, numpy, torch and all devices in use."""
    kept: list[Snapshot] = [
        State("random", random.getstate, random.setstate),
        State("numpy.random", partial(np.random.get_state, legacy=False), np.random.set_state),
        State("torch's random numbers", torch.get_rng_state, torch.set_rng_state),
    ]
    for kind, module in _accelerators(device):
        what = f"the random numbers of {kind}"
        try:
            every = "_all" if hasattr(module, "get_rng_state_all") else ""
            kept.append(State(what, getattr(module, f"get_rng_state{every}"), getattr(module, f"set_rng_state{every}")))
            if hasattr(module, "current_device") and hasattr(module, "set_device"):
                kept.append(Setting(f"the current {kind} device", module.current_device, module.set_device))
        except Exception as error:  # noqa: BLE001 - a broken driver is reported when the device is used, not here
            notes.add_failure("could not be read, and so were not put back", what, error)
    return kept


@dataclass
class WaitForDevices:
    """Lets pending work on the accelerators finish, which may still write to what is put back next."""

    device: torch.device
    what: str = "pending work on the device"

    def restore(self) -> None:
        for _, module in _accelerators(self.device):
            if hasattr(module, "synchronize"):
                module.synchronize()


class _WarningFilters:
    what = "the warnings filters"

    def __init__(self) -> None:
        self._filters: Any = warnings.filters
        self._saved = list(warnings.filters)

    def restore(self) -> None:
        if warnings.filters is self._filters and list(self._filters) == self._saved:
            return
        vars(warnings)["filters"] = self._filters
        # Empties the list and, unlike writing to it, makes the warnings machinery forget what it decided.
        warnings.resetwarnings()
        self._filters[:] = self._saved


def _set_environment(saved: dict[str, str]) -> None:
    for name in os.environ.keys() - saved.keys():
        del os.environ[name]
    os.environ.update({name: value for name, value in saved.items() if os.environ.get(name) != value})


def _working_directory() -> str | None:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return None


def _change_directory(path: str | None) -> None:
    if path is not None:
        os.chdir(path)


def keep_surroundings() -> list[Snapshot]:
    """Keep the warnings filters, the environment variables and the working directory."""
    environment = State("the environment variables", lambda: dict(os.environ), _set_environment)
    return [_WarningFilters(), environment, Setting("the working directory", _working_directory, _change_directory)]


class SignalHandlers:
    """Handlers of all signals; Python sets them in the main thread only."""

    what = "the signal handlers"

    def __init__(self) -> None:
        self._saved = {number: signal.getsignal(number) for number in signal.valid_signals()}
        self._loader_handler_set = _loader_handler_set()

    def restore(self) -> None:
        """Put changed handlers back; one that was not installed from Python cannot be."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number, handler in self._saved.items():
            if handler is not None and signal.getsignal(number) is not handler:
                signal.signal(number, handler)
        # The first DataLoader with workers installs a SIGCHLD handler and remembers that it has. With the
        # handler gone it has to forget, or the user's own loaders would not notice a killed worker.
        if self._loader_handler_set is False and _loader_handler_set():
            vars(signal_handling)["_SIGCHLD_handler_set"] = False


def _loader_handler_set() -> bool | None:
    return getattr(signal_handling, "_SIGCHLD_handler_set", None)
