"""A check that a test leaves nothing behind: compares the state of the process before and after it.

Python's own resource tracker and fork server outlive the first process that is spawned, by design, with the
pipes to them: no leaks. Anything else is, unless the test says why not: `@pytest.mark.leaks("reason")`.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import re
import signal
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from typing import Any

import psutil
import torch.utils.data
from torch.utils.data._utils import worker

_DESCRIPTORS = Path("/proc/self/fd")
_SHM = Path("/dev/shm")
PATIENCE_S = 3.0
"""Maximum wait for processes and threads that end in the background."""
_REQUESTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
# Set by pytest for each phase of a test, and by torch and OpenMP when they are first used.
_CHANGING_VARIABLES = ("PYTEST_CURRENT_TEST", "TORCHINDUCTOR_", "TRITON_", "KMP_")


@dataclass(frozen=True)
class ProcessState:
    """The process at one moment.

    Attributes:
        children: Descendants by process id and creation time, with their command lines.
        threads: Living Python threads; the pools of torch are none.
        descriptors: How many descriptors lead to each target.
        shared_memory: Names in /dev/shm.
        settings: Things that are the same object, or the same value, before and after, by name.
    """

    children: dict[tuple[int, float], str]
    threads: frozenset[threading.Thread]
    descriptors: Counter[str]
    shared_memory: frozenset[str]
    settings: dict[str, Any]


def take_state() -> ProcessState:
    """Return the present state of the process."""
    return ProcessState(_children(), frozenset(threading.enumerate()), _descriptors(), _shared_memory(), _settings())


def _allowed(of_tracker: str = "_pid", of_server: str = "_forkserver_pid") -> set[int]:
    """Return the numbers that stay by design: the ids of Python's own helpers, or another attribute of theirs."""
    tracker, server = resource_tracker._resource_tracker, forkserver._forkserver
    found = getattr(tracker, of_tracker, None), getattr(server, of_server, None)
    return {number for number in found if number is not None}


def _has_children() -> bool:
    """Return True if there is any child, living or not; the kernel answers faster than a search of /proc."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _children() -> dict[tuple[int, float], str]:
    if not _has_children():
        return {}
    allowed, found = _allowed(), {}
    for child in psutil.Process().children(recursive=True):
        try:
            if child.pid not in allowed and not _of_fork_server(child, allowed):
                found[(child.pid, child.create_time())] = " ".join(child.cmdline())[:200] or child.name()
        except psutil.ZombieProcess:
            found[(child.pid, 0.0)] = "has ended, and was not waited for"
        except psutil.NoSuchProcess:
            continue
    return found


def _of_fork_server(child: psutil.Process, allowed: set[int]) -> bool:
    """The resource tracker of a fork server is its child, and stays as long as it does."""
    return child.ppid() in allowed and any("resource_tracker" in part for part in child.cmdline())


def _descriptors() -> Counter[str]:
    found: Counter[str] = Counter()
    if not _DESCRIPTORS.is_dir():
        return found
    allowed = _allowed("_fd", "_forkserver_alive_fd")  # the pipes to these helpers
    for name in os.listdir(_DESCRIPTORS):
        try:
            target = os.readlink(_DESCRIPTORS / name)
        except OSError:  # the one that the listing itself was read through
            continue
        if int(name) not in allowed and not _is_of_the_system(target):
            found[target] += 1
    return found


def _is_of_the_system(target: str) -> bool:
    """Descriptors that the interpreter and the driver open once and keep."""
    return target.startswith(("/dev/urandom", "/dev/nvidia"))


def _shared_memory() -> frozenset[str]:
    """The files of torch's shared memory, which have a process in their names, but those of processes of others."""
    if not _SHM.is_dir():
        return frozenset()
    own = {os.getpid(), *_allowed(), *(child.pid for child in psutil.Process().children(recursive=True))}
    made = {name: int(name.split("_")[1]) for name in os.listdir(_SHM) if re.match(r"torch_\d+_", name)}
    return frozenset(name for name, pid in made.items() if pid in own or not psutil.pid_exists(pid))


def _settings() -> dict[str, Any]:
    loader = torch.utils.data.DataLoader
    environment = {name: value for name, value in os.environ.items() if not name.startswith(_CHANGING_VARIABLES)}
    return {
        "DataLoader.__init__": loader.__init__,
        "DataLoader.__iter__": loader.__iter__,
        "worker._worker_loop": worker._worker_loop,
        "torch.utils.data.get_worker_info": torch.utils.data.get_worker_info,
        "the signal handlers": {number: signal.getsignal(number) for number in _REQUESTS},
        # But those for a library's own warnings, which it adds when it is first imported.
        "warnings.filters": [each for each in warnings.filters if each[2].__module__ == "builtins"],
        "os.environ": environment,
        "sys.path": list(sys.path),
        "the working directory": os.getcwd(),
    }


def leaks_between(before: ProcessState, after: ProcessState) -> list[str]:
    """Name the additions since the state before, and the changes.

    Args:
        before: Taken before the test.
        after: Taken after it.

    Returns:
        One sentence for each leak.
    """
    found = [
        f"child process {key[0]} is left: {command}"
        for key, command in after.children.items()
        if key not in before.children
    ]
    found += [f"thread {thread.name!r} is left" for thread in after.threads - before.threads]
    found += [
        f"{count} descriptor(s) of {target} left open"
        for target, count in (after.descriptors - before.descriptors).items()
    ]
    found += [f"/dev/shm/{name} is left" for name in sorted(after.shared_memory - before.shared_memory)]
    for name, value in before.settings.items():
        if value != after.settings[name]:
            now = after.settings[name]
            changed = sorted(set(value.items()) ^ set(now.items())) if name == "os.environ" else f"{value} -> {now}"
            found.append(f"{name} has changed: {changed}")
    return found


def wait_for_leaks(
    before: ProcessState, patience_s: float | None = None, pause: Callable[[float], None] = time.sleep
) -> list[str]:
    """Name what a test has left, once what ends in the background has had time to end.

    Args:
        before: The state before the test.
        patience_s: How long to wait while something is left; None: `PATIENCE_S`.
        pause: Waits a number of seconds.
    """
    deadline = time.monotonic() + (PATIENCE_S if patience_s is None else patience_s)
    found = leaks_between(before, take_state())
    while found:
        gc.collect()  # reference cycles around loaders hold workers and descriptors
        multiprocessing.active_children()  # waits for those that have ended
        found = leaks_between(before, take_state())
        if not found or time.monotonic() >= deadline:
            break
        pause(0.05)
    return found
