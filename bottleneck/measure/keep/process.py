"""State of the process: random numbers, global settings, warnings, environment, working directory, signal handlers."""

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
from contextlib import suppress
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
import torch
import torch.multiprocessing

from bottleneck.job.torch_loading import forget_sigchld_handler, has_sigchld_handler

_ACCELERATORS = ("cuda", "xpu", "mps")
_CUDNN = ("enabled", "benchmark", "deterministic", "allow_tf32")

Restore = Callable[[], object]
"""Restores one thing; raises if that fails."""
Kept = tuple[str, Restore]
"""A thing, by its name in a sentence, and the function that restores it."""
_State = tuple[str, Callable[[], Any], Callable[[Any], object]]
"""Name in a sentence, getter and setter."""


def keep_process(device: torch.device) -> list[Kept]:
    """Save the state of the process that a diagnosis may change, in the order of restoring."""
    filters = warnings.filters, list(warnings.filters)
    environment = dict(os.environ)
    directory = []
    with suppress(FileNotFoundError):  # it has been deleted
        directory.append(("the working directory", partial(os.chdir, os.getcwd())))
    return [
        *_keep_settings(),
        ("the warnings filters", lambda: _set_filters(*filters)),
        ("the environment variables", lambda: _set_environment(environment)),
        *directory,
        *keep_random(device),
        ("the signal handlers", _keep_signal_handlers()),
    ]


# --- settings ----------------------------------------------------------------------------------------------


def _settings() -> Iterator[_State]:
    """Yield torch's global settings and a few of Python's."""
    yield "the matmul precision", torch.get_float32_matmul_precision, torch.set_float32_matmul_precision
    for owner, name in (*((torch.backends.cudnn, name) for name in _CUDNN), (torch.backends.cuda.matmul, "allow_tf32")):
        yield f"{name} of torch.backends", partial(getattr, owner, name), partial(setattr, owner, name)
    yield "deterministic algorithms", torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode
    yield "the default dtype", torch.get_default_dtype, torch.set_default_dtype
    yield "the number of threads", torch.get_num_threads, torch.set_num_threads
    yield "grad mode", torch.is_grad_enabled, torch.set_grad_enabled
    get_sharing, set_sharing = torch.multiprocessing.get_sharing_strategy, torch.multiprocessing.set_sharing_strategy
    yield "the sharing strategy", get_sharing, set_sharing
    # The first process fixes an open choice, after which the user's own set_start_method() would be refused.
    start_method = partial(multiprocessing.get_start_method, allow_none=True)
    yield "the start method of processes", start_method, partial(multiprocessing.set_start_method, force=True)
    yield "garbage collection", gc.isenabled, lambda enabled: gc.enable() if enabled else gc.disable()


def _keep_settings() -> Iterator[Kept]:
    for what, get, put in _settings():
        with suppress(RuntimeError):  # refused because of a newer setting that was used
            yield what, partial(_restore, get, put, get())


def _restore(get: Callable[[], Any], put: Callable[[Any], object], saved: Any) -> None:
    """Write a setting only if it differs, as some setters warn."""
    if get() != saved:
        put(saved)


# --- random numbers and devices ----------------------------------------------------------------------------


def accelerators(device: torch.device) -> list[tuple[str, ModuleType]]:
    """Return the accelerators in use: accessing another one would start it, which takes memory on each device."""
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
    """Save the global random number generators of Python, numpy, torch and all devices in use."""
    states: list[_State] = [
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
    """Save the state of a random number generator, one of `GENERATORS`."""
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
    # Empties the list and, in contrast to writing to it, resets the decisions of the warnings machinery.
    warnings.resetwarnings()
    filters[:] = saved


def _set_environment(saved: dict[str, str]) -> None:
    for name in os.environ.keys() - saved.keys():
        del os.environ[name]
    os.environ.update({name: value for name, value in saved.items() if os.environ.get(name) != value})


def _keep_signal_handlers() -> Restore:
    """Save the handlers of all signals; Python sets them in the main thread only."""
    saved = {number: signal.getsignal(number) for number in signal.valid_signals()}
    loader_handler_set = has_sigchld_handler()

    def restore() -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        for number, handler in saved.items():
            if handler is not None and signal.getsignal(number) is not handler:
                signal.signal(number, handler)
        # The first DataLoader with workers installs a SIGCHLD handler and remembers that. Without the handler it has to
        # forget, or the user's own loaders would not notice a killed worker.
        if loader_handler_set is False:
            forget_sigchld_handler()

    return restore
