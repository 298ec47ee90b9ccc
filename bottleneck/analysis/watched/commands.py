"""Next steps that prove an observation: the command, derived from the process', and the line that a script needs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from bottleneck.analysis.watched.loop import Loop
from bottleneck.analysis.watched.loops import Source
from bottleneck.results.stacks import ProcessStacks
from bottleneck.results.watched import WatchedEdit

_TAKE_A_VALUE = ("-W", "-X", "--check-hash-based-pycs")
"""Python options that are followed by a value."""
_NOT_FROM_A_FILE = ("-c", "-", "")
_NOTEBOOKS = ("ipykernel_launcher", "ipykernel_launcher.py", "ipykernel")
_OURS = ("bottleneck", "torch_bottleneck")
_LAUNCHERS = {
    "torchrun": "torchrun",
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
    "accelerate": "accelerate",
}
_RUN = ("bottleneck", "run")


def command_that_proves(process: ProcessStacks, processes: Mapping[int, ProcessStacks]) -> tuple[str, ...]:
    """Return the `bottleneck run` command for a process' script; empty if it runs none, such as a notebook's kernel.

    Args:
        process: A process that trains.
        processes: All observed processes of its job and their ancestors, by PID.
    """
    script = script_of(process.command)
    launcher = _launcher(process, processes, script)
    if launcher:
        return (*launcher, "-m", *_RUN, *script)
    return (*_RUN, *script) if script else ()


def script_of(command: Sequence[str]) -> tuple[str, ...]:
    """Return the script of a Python command with its arguments, `-m` in front of a module; empty without a script."""
    words = list(command[1:])
    while words and words[0].startswith("-") and not words[0].startswith("-m"):
        word = words.pop(0)
        if word in _NOT_FROM_A_FILE:
            return ()
        del words[: word in _TAKE_A_VALUE]
    if words and words[0].startswith("-m"):
        words[:1] = ["-m", *filter(None, [words[0][2:]])]
    at = 1 if words[:1] == ["-m"] else 0
    name = os.path.basename(words[at]) if len(words) > at else ""
    if name in _NOTEBOOKS or name in _NOT_FROM_A_FILE:
        return ()
    if name not in _OURS:
        return tuple(words)
    # One of our commands that runs a script.
    behind = words[at + 1 :]
    starts = (at for at, word in enumerate(behind) if word == "-m" or word.endswith(".py"))
    return tuple(behind[next(starts, len(behind)) :])


def _launcher(process: ProcessStacks, processes: Mapping[int, ProcessStacks], script: Sequence[str]) -> tuple[str, ...]:
    """Return the launcher's command that started a rank, up to the script; empty without a launcher."""
    parent = processes.get(process.parent)
    while parent is not None:
        words = [word for word in parent.command[1:3] if word != "-m"][:1]
        name = _LAUNCHERS.get(os.path.basename(words[0])) if words else None
        if name and script and parent.command[-len(script) :] == tuple(script):
            first = parent.command.index(words[0]) + 1
            return (name, *parent.command[first : -len(script)])
        parent = processes.get(parent.parent)
    return ()


def edit_of(loop: Loop, sources: Mapping[str, Source]) -> WatchedEdit | None:
    """Return the edit of the line that provides most input of a loop without a DataLoader; None if there is none."""
    if loop.has_loader:
        return None
    for frame, _ in sorted(loop.heads.items(), key=lambda found: -found[1]):
        edit = sources[frame.file].edit_at(frame.line) if frame.file in sources else None
        if edit is not None:
            return WatchedEdit(frame.file, edit.line, edit.before, edit.after, edit.above)
    return None
