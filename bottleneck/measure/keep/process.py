"""The process as it was: random numbers, global flags, warnings, environment, working directory, signal handlers."""

from __future__ import annotations

import copy
import gc
import multiprocessing
import os
import random
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from types import ModuleType
from typing import Any

import numpy as np
import torch
import torch.multiprocessing
from torch.utils.data._utils import signal_handling

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
    # From torch 2.9 a finer family of flags, some of which are inherited from the general ones.
    "cudnn.fp32_precision",
    "cuda.matmul.fp32_precision",
    "cudnn.conv.fp32_precision",
    "cudnn.rnn.fp32_precision",
    "mkldnn.fp32_precision",
    "mkldnn.conv.fp32_precision",
    "mkldnn.matmul.fp32_precision",
)
"""Flags in `torch.backends`."""

Restore = Callable[[], object]
"""Puts one thing back; raises whatever stops it."""
Kept = tuple[str, Restore]
"""A thing, as a sentence calls it, and what puts it back."""


def keep_process(device: torch.device) -> list[Kept]:
    """Keep what a diagnosis may change of the process, in the order in which it goes back."""
    filters = warnings.filters, list(warnings.filters)
    environment = dict(os.environ)
    return [
        ("flags of torch", _keep_flags(device)),
        ("the warnings filters", lambda: _set_filters(*filters)),
        ("the environment variables", lambda: _set_environment(environment)),
        ("the working directory", _keep_working_directory()),
        *keep_random(device),
        ("the signal handlers", _keep_signal_handlers()),
    ]


# --- flags -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Flag:
    """A setting that is written only where it differs, as some setters warn."""

    what: str
    get: Callable[[], Any]
    put: Callable[[Any], object]


def _attribute(owner: object, path: str, what: str) -> _Flag:
    holder, _, name = path.rpartition(".")

    def put(value: Any) -> None:
        setattr(attrgetter(holder)(owner) if holder else owner, name, value)

    return _Flag(what, lambda: attrgetter(path)(owner), put)


def _flags(device: torch.device) -> Iterator[_Flag]:
    """Yield torch's global flags and a few of Python's, the general ones first."""
    for kind in dict.fromkeys(("cpu", "cuda", device.type)):
        for what, get, put in (
            ("autocast", torch.is_autocast_enabled, torch.set_autocast_enabled),
            ("the autocast dtype", torch.get_autocast_dtype, torch.set_autocast_dtype),
        ):
            yield _Flag(f"{what} on {kind}", partial(get, kind), partial(put, kind))
    yield _Flag("the matmul precision", torch.get_float32_matmul_precision, torch.set_float32_matmul_precision)
    for path in _BACKENDS:
        yield _attribute(torch.backends, path, f"torch.backends.{path}")
    yield _Flag("deterministic algorithms", _deterministic, _use_deterministic)
    yield _Flag("the default dtype", torch.get_default_dtype, torch.set_default_dtype)
    yield _Flag("the number of threads", torch.get_num_threads, torch.set_num_threads)
    yield _Flag("grad mode", torch.is_grad_enabled, torch.set_grad_enabled)
    yield _Flag("anomaly mode", torch.is_anomaly_enabled, torch.set_anomaly_enabled)
    get_sharing, set_sharing = torch.multiprocessing.get_sharing_strategy, torch.multiprocessing.set_sharing_strategy
    yield _Flag("the sharing strategy", get_sharing, set_sharing)
    # The first process fixes an open choice, and the user's own set_start_method() would be refused after it.
    start_method = partial(multiprocessing.get_start_method, allow_none=True)
    yield _Flag("the start method of processes", start_method, partial(multiprocessing.set_start_method, force=True))
    yield _Flag("garbage collection", gc.isenabled, lambda enabled: gc.enable() if enabled else gc.disable())
    yield _attribute(warnings, "showwarning", "warnings.showwarning")


def _deterministic() -> tuple[bool, bool]:
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


def _use_deterministic(saved: tuple[bool, bool]) -> None:
    torch.use_deterministic_algorithms(saved[0], warn_only=saved[1])


def _keep_flags(device: torch.device) -> Restore:
    """Keep every flag that this torch has and can read."""
    kept: list[tuple[_Flag, Any]] = []
    for flag in _flags(device):
        # Not in this version or build of torch, or refused because of a newer flag, which is kept as well.
        with suppress(RuntimeError, AttributeError, TypeError, ValueError):
            kept.append((flag, flag.get()))

    def restore() -> None:
        for final in (False, False, True):  # some cannot be read, or written, until others are back
            for flag, saved in kept:
                with suppress(Exception) if not final else nullcontext():
                    _put_back(flag, saved)

    return restore


def _put_back(flag: _Flag, saved: Any) -> None:
    try:
        if flag.get() == saved:
            return
    except RuntimeError:  # refused because of a newer flag that was set in between
        pass
    flag.put(saved)


# --- random numbers and devices ----------------------------------------------------------------------------


def accelerators(device: torch.device) -> list[tuple[str, ModuleType]]:
    """Return the accelerators in use: touching another one would start it, which takes memory on each device."""
    found = []
    for kind in dict.fromkeys((*_ACCELERATORS, device.type)):
        module = getattr(torch, kind, None)
        if kind == "cpu" or not isinstance(module, ModuleType) or not hasattr(module, "get_rng_state"):
            continue
        # In torch 2.4, torch.mps has no is_available.
        asked = module if hasattr(module, "is_available") else getattr(torch.backends, kind, None)
        if asked is not None and not asked.is_available():
            continue
        is_initialized = getattr(module, "is_initialized", lambda: True)
        if kind == device.type or is_initialized():
            found.append((kind, module))
    return found


def keep_random(device: torch.device) -> list[Kept]:
    """Keep the global random number generators of Python, numpy, torch and all devices in use."""
    states: list[tuple[str, Callable[[], Any], Callable[[Any], object]]] = [
        ("random", random.getstate, random.setstate),
        ("numpy.random", partial(np.random.get_state, legacy=False), np.random.set_state),
        ("torch's random numbers", torch.get_rng_state, torch.set_rng_state),
    ]
    for kind, module in accelerators(device):
        every = "_all" if hasattr(module, "get_rng_state_all") else ""
        get, put = (getattr(module, f"{verb}_rng_state{every}", None) for verb in ("get", "set"))
        if get is not None and put is not None:
            states.append((f"the random numbers of {kind}", get, put))
        if hasattr(module, "current_device") and hasattr(module, "set_device"):
            states.append((f"the current {kind} device", module.current_device, module.set_device))
    kept: list[Kept] = []
    for what, get, put in states:
        with suppress(Exception):  # a broken driver is reported when the device is used
            kept.append((what, partial(put, get())))
    return kept


def keep_generator(generator: Any) -> Restore:
    """Keep the state of a random number generator, one of `GENERATORS`."""
    if isinstance(generator, torch.Generator):
        return partial(generator.set_state, generator.get_state())
    if isinstance(generator, random.Random):
        return partial(generator.setstate, generator.getstate())
    if isinstance(generator, np.random.RandomState):
        return partial(generator.set_state, generator.get_state(legacy=False))
    bits = generator.bit_generator
    return partial(setattr, bits, "state", copy.deepcopy(bits.state))


GENERATORS = (torch.Generator, random.Random, np.random.Generator, np.random.RandomState)


# --- surroundings ------------------------------------------------------------------------------------------


def _set_filters(filters: Any, saved: list[Any]) -> None:
    if warnings.filters is filters and list(filters) == saved:
        return
    vars(warnings)["filters"] = filters
    # Empties the list and, unlike writing to it, makes the warnings machinery forget what it decided.
    warnings.resetwarnings()
    filters[:] = saved


def _set_environment(saved: dict[str, str]) -> None:
    for name in os.environ.keys() - saved.keys():
        del os.environ[name]
    os.environ.update({name: value for name, value in saved.items() if os.environ.get(name) != value})


def _keep_working_directory() -> Restore:
    try:
        return partial(os.chdir, os.getcwd())
    except FileNotFoundError:  # it has been deleted
        return lambda: None


def _keep_signal_handlers() -> Restore:
    """Keep the handlers of all signals; Python sets them in the main thread only."""
    saved = {number: signal.getsignal(number) for number in signal.valid_signals()}
    loader_handler_set = getattr(signal_handling, "_SIGCHLD_handler_set", None)

    def restore() -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        for number, handler in saved.items():
            if handler is not None and signal.getsignal(number) is not handler:
                signal.signal(number, handler)
        # The first DataLoader with workers installs a SIGCHLD handler and remembers that it has. Without the handler
        # it has to forget, or the user's own loaders would not notice a killed worker.
        if loader_handler_set is False:
            vars(signal_handling)["_SIGCHLD_handler_set"] = False

    return restore
