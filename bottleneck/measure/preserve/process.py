"""The process as it was: random numbers, torch's global flags, warnings, environment, signal handlers."""

from __future__ import annotations

import gc
import multiprocessing
import os
import random
import signal
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import torch
import torch.multiprocessing
from torch.utils.data._utils import signal_handling

from bottleneck.measure.preserve.restoration import Notes, Snapshot

_PASSES = 3
_ACCELERATORS = ("cuda", "xpu", "mps")
_CUDNN_FLAGS = ("enabled", "benchmark", "benchmark_limit", "deterministic", "allow_tf32")
_MATMUL_FLAGS = (
    "allow_tf32",
    "allow_fp16_reduced_precision_reduction",
    "allow_bf16_reduced_precision_reduction",
)
_PRECISION_OWNERS = (
    "cudnn",
    "cuda.matmul",
    "cudnn.conv",
    "cudnn.rnn",
    "mkldnn",
    "mkldnn.conv",
    "mkldnn.matmul",
)


@dataclass
class _Setting:
    """A value behind a getter and a setter; written only when it differs, as some setters warn."""

    what: str
    get: Callable[[], Any]
    put: Callable[[Any], object]
    saved: Any

    def restore(self) -> None:
        try:
            changed = self.get() != self.saved
        except RuntimeError:  # refused beside a newer flag that the body has set
            changed = True
        if changed:
            self.put(self.saved)


def _attribute(owner: Any, name: str) -> tuple[Callable[[], Any], Callable[[Any], None]]:
    return lambda: getattr(owner, name), lambda value: setattr(owner, name, value)


def _deterministic() -> tuple[bool, bool]:
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


def _collect_garbage(enabled: bool) -> None:
    (gc.enable if enabled else gc.disable)()


def _flags() -> list[tuple[str, Callable[[], Any], Callable[[Any], object]]]:
    """Name, getter and setter of torch's global flags and a few of Python's; the general ones first."""
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    attributes: list[tuple[str, Any, str]] = [
        *((f"cudnn.{name}", cudnn, name) for name in _CUDNN_FLAGS),
        *((f"cuda.matmul.{name}", matmul, name) for name in _MATMUL_FLAGS),
    ]
    # From torch 2.9 a finer family of flags, of which some are inherited from the general ones.
    for path in _PRECISION_OWNERS:
        owner: Any = torch.backends
        for part in path.split("."):
            owner = getattr(owner, part, None)
        attributes.append((f"{path}.fp32_precision", owner, "fp32_precision"))
    precision = (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision)
    sharing = (torch.multiprocessing.get_sharing_strategy, torch.multiprocessing.set_sharing_strategy)
    return [
        ("the float32 matmul precision", *precision),
        ("torch.backends.fp32_precision", *_attribute(torch.backends, "fp32_precision")),
        *((f"torch.backends.{name}", *_attribute(owner, key)) for name, owner, key in attributes),
        ("deterministic algorithms", _deterministic, _use_deterministic),
        ("the default dtype", torch.get_default_dtype, torch.set_default_dtype),
        ("the number of threads", torch.get_num_threads, torch.set_num_threads),
        ("grad mode", torch.is_grad_enabled, torch.set_grad_enabled),
        ("anomaly mode", torch.is_anomaly_enabled, torch.set_anomaly_enabled),
        ("the autocast cache", torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled),
        ("the sharing strategy", *sharing),
        ("the start method of processes", *_start_method()),
        ("garbage collection", gc.isenabled, _collect_garbage),
        ("warnings.showwarning", *_attribute(warnings, "showwarning")),
        ("warnings.formatwarning", *_attribute(warnings, "formatwarning")),
    ]


def _start_method() -> tuple[Callable[[], Any], Callable[[Any], None]]:
    # The first process fixes an open choice, and the user's own set_start_method() would be refused after it.
    return (
        lambda: multiprocessing.get_start_method(allow_none=True),
        lambda method: multiprocessing.set_start_method(method, force=True),
    )


def _use_deterministic(saved: tuple[bool, bool]) -> None:
    torch.use_deterministic_algorithms(saved[0], warn_only=saved[1])


def _autocast(kind: str) -> list[tuple[str, Callable[[], Any], Callable[[Any], object]]]:
    return [
        (
            f"autocast on {kind}",
            lambda: torch.is_autocast_enabled(kind),
            lambda value: torch.set_autocast_enabled(kind, value),
        ),
        (
            f"the autocast dtype on {kind}",
            lambda: torch.get_autocast_dtype(kind),
            lambda value: torch.set_autocast_dtype(kind, value),
        ),
    ]


@dataclass
class Flags:
    """Flags that depend on each other: some cannot be read, or move again, until others are back."""

    settings: list[_Setting]
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
    kept: list[_Setting] = []
    for kind in dict.fromkeys(("cpu", "cuda", device.type)):
        for name, get, put in _autocast(kind):
            _keep(kept, name, get, put)
    for name, get, put in _flags():
        _keep(kept, name, get, put)
    return Flags(kept)


def _keep(kept: list[_Setting], name: str, get: Callable[[], Any], put: Callable[[Any], object]) -> None:
    try:
        kept.append(_Setting(name, get, put, get()))
    except (RuntimeError, AttributeError, TypeError, ValueError):
        return  # not in this version or build of torch, or refused beside a newer flag that is kept as well


def _accelerators(device: torch.device) -> list[tuple[str, ModuleType]]:
    """Accelerators in use: touching another one would start it, which takes memory on each device."""
    found = []
    for kind in dict.fromkeys((*_ACCELERATORS, device.type)):
        module = getattr(torch, kind, None)
        if kind == "cpu" or not isinstance(module, ModuleType) or not hasattr(module, "get_rng_state"):
            continue
        if not getattr(module, "is_available", lambda: True)():
            continue
        is_initialized = getattr(module, "is_initialized", lambda: True)
        if kind == device.type or is_initialized():
            found.append((kind, module))
    return found


@dataclass
class _State:
    """A state behind a setter, written without comparing."""

    what: str
    put: Callable[[Any], object]
    saved: Any

    def restore(self) -> None:
        self.put(self.saved)


def keep_random(device: torch.device, notes: Notes) -> list[Snapshot]:
    """Keep the global random number generators of Python, numpy, torch and all devices in use."""
    kept: list[Snapshot] = [
        _State("random", random.setstate, random.getstate()),
        _State("numpy.random", np.random.set_state, np.random.get_state(legacy=False)),
        _State("torch's random numbers", torch.set_rng_state, torch.get_rng_state()),
    ]
    for kind, module in _accelerators(device):
        what = f"the random numbers of {kind}"
        try:
            if hasattr(module, "get_rng_state_all"):
                kept.append(_State(what, module.set_rng_state_all, module.get_rng_state_all()))
            else:
                kept.append(_State(what, module.set_rng_state, module.get_rng_state()))
            if hasattr(module, "current_device") and hasattr(module, "set_device"):
                current = module.current_device
                kept.append(_Setting(f"the current {kind} device", current, module.set_device, current()))
        except Exception as error:  # noqa: BLE001 - a broken driver is told when the device is used, not here
            notes.add_failure("could not be read, and so were not put back", what, error)
    return kept


@dataclass
class WaitForDevices:
    """Lets pending work on the accelerators finish, which may still write to what is put back next."""

    device: torch.device
    what: str = "pending work on the device"

    def restore(self) -> None:
        """Synchronise every accelerator in use."""
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


class _Environment:
    what = "the environment variables"

    def __init__(self) -> None:
        self._saved = dict(os.environ)

    def restore(self) -> None:
        for name in [name for name in os.environ if name not in self._saved]:
            del os.environ[name]
        for name, value in self._saved.items():
            if os.environ.get(name) != value:
                os.environ[name] = value


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
    directory = _Setting("the working directory", _working_directory, _change_directory, _working_directory())
    return [_WarningFilters(), _Environment(), directory]


class SignalHandlers:
    """Handlers of all signals; from another thread than the main one Python lets nobody set them."""

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
