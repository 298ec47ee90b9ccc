"""Conclusions from a single stack: its process is a worker; its thread waits, loads or trains; the line at work."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from bottleneck.results.stacks import Frame, Stack

_LIBRARY = re.compile(r"[/\\](?:site-packages|dist-packages|lib(?:64)?[/\\]python\d[^/\\]*)[/\\]|^<|\.(?:so|pyx)$|^$")
_OURS = re.compile(
    r"[/\\]bottleneck[/\\](?:cli|script|job|loader|measure|watching)[/\\]|[/\\]bottleneck[/\\]__main__\.py$"
)
_LOADERS = ("torch/utils/data/dataloader.py", "torchdata/stateful_dataloader/stateful_dataloader.py")
_FETCHES = "torch/utils/data/_utils/fetch.py"
_WORKER_LOOPS = ("torch/utils/data/_utils/worker.py", "torchdata/stateful_dataloader/worker.py")
_TRANSFORMS = re.compile(r"[/\\](?:transforms|augmentations?|kornia)[/\\]")
"""Folders with modules that change samples, and are not part of a model."""
_CALLS_A_MODULE = frozenset({"_call_impl", "_wrapped_call_impl", "_fn", "compile_wrapper", "__call__"})
_MODULES = ("torch/nn/modules/module.py", "torch/_dynamo/eval_frame.py")
_TRAINS = (
    "torch/_tensor.py", "torch/autograd/__init__.py", "torch/autograd/graph.py", "torch/optim/",
    "torch/amp/grad_scaler.py", "deepspeed/runtime/",
)  # fmt: skip
_WAITS = {
    "selectors.py": frozenset({"select"}),
    "threading.py": frozenset({"wait", "acquire", "join", "_wait_for_tstate_lock", "wait_for"}),
    "queue.py": frozenset({"get", "put"}),
    "multiprocessing/connection.py": frozenset({"wait", "_poll", "poll", "_recv", "accept", "_recv_bytes"}),
    "multiprocessing/synchronize.py": frozenset({"acquire", "wait", "__enter__"}),
    "multiprocessing/popen_fork.py": frozenset({"poll", "wait"}),
    "concurrent/futures/_base.py": frozenset({"result", "wait", "as_completed"}),
    "concurrent/futures/thread.py": frozenset({"_worker"}),
    "subprocess.py": frozenset({"wait", "_wait", "_try_wait"}),
    "socket.py": frozenset({"accept"}),
}
"""Functions in which a thread waits for another thread or process, by the end of their file's path."""


def short_name(function: str) -> str:
    """Return the name of a function without its class and the functions around it."""
    return function.rpartition(".")[2]


def ends_with(file: str, endings: Iterable[str]) -> bool:
    """Return True if a file's path has one of some endings, or contains a given folder."""
    plain = file.replace("\\", "/")
    return any(plain.endswith(ending) or (ending.endswith("/") and ending in plain) for ending in endings)


def is_users(frame: Frame) -> bool:
    """Return True if the code of a frame is the user's, judged by the place of its file."""
    return not _LIBRARY.search(frame.file) and not _OURS.search(frame.file)


def is_loader(frame: Frame) -> bool:
    """Return True if a frame belongs to a DataLoader's iterator."""
    return ends_with(frame.file, _LOADERS)


def is_fetch(frame: Frame) -> bool:
    """Return True if a frame fetches the samples of a batch, or collates them."""
    return ends_with(frame.file, (_FETCHES,))


def calls_module(frame: Frame) -> bool:
    """Return True if a frame is PyTorch's call of a module."""
    return short_name(frame.function) in _CALLS_A_MODULE and ends_with(frame.file, _MODULES)


def trains(frame: Frame) -> bool:
    """Return True if a frame is a backward pass or an optimizer step, but not the slow creation of an optimizer."""
    if short_name(frame.function) in ("__init__", "<module>"):
        return False
    if ends_with(frame.file, ("torch/_tensor.py",)):
        return short_name(frame.function) == "backward"
    return ends_with(frame.file, _TRAINS)


def worker_part(stack: Stack) -> Stack | None:
    """Return the frames within a DataLoader worker's loop; None for any other process, even one with workers."""
    for at, frame in enumerate(stack):
        if short_name(frame.function) == "_worker_loop" and ends_with(frame.file, _WORKER_LOOPS):
            return stack[at + 1 :]
    return None


def training_mark(stack: Stack) -> int | None:
    """Return the position of the first frame of a module call, backward pass or optimizer step; None if there is none.

    Modules that run inside a DataLoader are transforms, and do not count.
    """
    for at, frame in enumerate(stack):
        if is_loader(frame):
            return None
        if trains(frame):
            return at
        if calls_module(frame):
            inner = next((one for one in stack[at:] if not calls_module(one)), None)
            return None if inner is not None and _TRANSFORMS.search(inner.file) else at
    return None


def loader_mark(stack: Stack) -> int | None:
    """Return the position of the first frame of a DataLoader; None if there is none, or a frame before it trains."""
    found = next((at for at, frame in enumerate(stack) if is_loader(frame)), None)
    mark = None if found is None else training_mark(stack[:found])
    return found if mark is None else None


def waits(stack: Stack) -> bool:
    """Return True if a thread waits for another thread or process, and does not compute or read."""
    if not stack:
        return False
    innermost = stack[-1]
    name = short_name(innermost.function)
    return any(name in names and ends_with(innermost.file, (file,)) for file, names in _WAITS.items())


def users_frames(stack: Stack) -> Iterator[tuple[int, Frame]]:
    """Return the user's frames with their positions, the outermost first."""
    return ((at, frame) for at, frame in enumerate(stack) if is_users(frame))


def line_at_work(stack: Stack) -> tuple[Frame, Frame | None] | None:
    """Return the user's innermost frame, and the user's frame of another function that led there.

    Without any user's code, it is the outermost frame of a library, such as a dataset from a package; None without any
    such frame.
    """
    own = [frame for _, frame in users_frames(stack)]
    if own:
        callers = (frame for frame in reversed(own) if frame.function != own[-1].function)
        return own[-1], next(callers, None)
    machinery = (*_LOADERS, _FETCHES, *_WORKER_LOOPS)
    library = (frame for frame in stack if not ends_with(frame.file, machinery) and not frame.file.startswith("<"))
    found = next(library, None)
    return None if found is None else (found, None)
