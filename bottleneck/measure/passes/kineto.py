"""Runs torch's profiler, Kineto, around some steps, so that it can do no harm.

There is one Kineto in a process. A second profiler that starts takes it over, and asking the first one for its result
then can end the process (seen with torch 2.15): so nothing is started beside another profiler, and none of the user's
code may start one meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.autograd import profiler as autograd_profiler

from bottleneck.results.format import size

MOST_BYTES = 400_000_000
"""What a trace may take, uncompressed."""
_ENTRIES = ("_prepare_profiler", "_enable_profiler", "_disable_profiler")
_STANDARD_ERROR = 2
_CUPTI_RETURNS_FROM = (12, 6)
"""The version of CUDA from which on CUPTI can be taken down and used again beside CUDA graphs."""


class TraceError(Exception):
    """There is no trace; the message says why, as the end of a sentence."""


def record_trace(run: Callable[[], None], device: torch.device) -> str:
    """Trace what a function does.

    Args:
        run: Is called once; it leaves the device idle.
        device: Of the job.

    Returns:
        The Chrome trace, a JSON document. The name of the machine is not in it.

    Raises:
        TraceError: There can be none, because of another profiler or the trace's size.
        Exception: What `run` raises.
    """
    if _is_active():
        raise TraceError("another torch profiler is active")
    with tempfile.TemporaryDirectory(prefix="bottleneck-") as folder, _cupti_kept(device):
        path = Path(folder) / "trace.json"
        profiler: Any = autograd_profiler.profile(
            record_shapes=True,
            use_device=_kind(device),
            use_kineto=True,  # without it, kernels are timed by events of CUDA, and do not show
        )
        with _silence():
            profiler.__enter__()
        try:
            with _no_other_profiler():
                run()
        finally:
            # Of a session that somebody else has ended, nothing may be asked for.
            ours = _is_active()
            if ours:
                with _silence():
                    profiler.__exit__(None, None, None)
        if not ours:
            raise TraceError("another torch profiler took over meanwhile")
        with _silence():
            profiler.export_chrome_trace(str(path))
        if path.stat().st_size > MOST_BYTES:
            raise TraceError(f"it takes over {size(MOST_BYTES)}")
        return _without_host(path.read_text("utf-8", errors="replace"))


def _is_active() -> bool:
    return bool(torch._C._autograd._profiler_enabled())


def _kind(device: torch.device) -> str | None:
    """The kind of device whose work is traced; None where the profiler knows only the host's."""
    supported: Any = torch.profiler.supported_activities
    known = {str(activity).rpartition(".")[2].lower() for activity in supported()}
    return device.type if device.type in known - {"cpu"} else None


def _without_host(text: str) -> str:
    return re.sub(r'"host_name":\s*"[^"]*"', '"host_name": ""', text, count=1)


@contextlib.contextmanager
def _no_other_profiler() -> Iterator[None]:
    """Refuse to start or stop a profiler meanwhile, in words, before Kineto is touched."""

    def refuse(*args: object, **kwargs: object) -> None:
        del args, kwargs
        raise TraceError("the train step uses torch's profiler itself")

    kept = {name: getattr(autograd_profiler, name) for name in _ENTRIES if hasattr(autograd_profiler, name)}
    for name in kept:
        setattr(autograd_profiler, name, refuse)
    try:
        yield
    finally:
        for name, entry in kept.items():
            setattr(autograd_profiler, name, entry)


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Drop what is written to standard error: Kineto does so from C++, in the middle of our progress."""
    with contextlib.suppress(AttributeError, OSError, ValueError):  # there may be none, or a closed one
        sys.stderr.flush()
    try:
        kept = os.dup(_STANDARD_ERROR)
    except OSError:  # closed, as in a service
        yield
        return
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), _STANDARD_ERROR)
        yield
    finally:
        os.dup2(kept, _STANDARD_ERROR)
        os.close(kept)


@contextlib.contextmanager
def _cupti_kept(device: torch.device) -> Iterator[None]:
    """Keep CUPTI, the source of what the device did, alive where taking it down would break CUDA graphs.

    The same two variables as `torch.profiler` sets, but only meanwhile.
    """
    version = tuple(int(part) for part in (torch.version.cuda or "").split(".")[:2] if part.isdigit())
    breaks = device.type == "cuda" and version < _CUPTI_RETURNS_FROM and "torch._inductor" in sys.modules
    wanted = {"DISABLE_CUPTI_LAZY_REINIT": "1", "TEARDOWN_CUPTI": "0"} if breaks else {}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
