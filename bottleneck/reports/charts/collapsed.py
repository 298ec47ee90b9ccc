"""A profile as collapsed stacks: one stack a line, as most tools for flamegraphs read them."""

from __future__ import annotations

from bottleneck.reports import sanitize
from bottleneck.results.stacks import Frame, StackProfile


def render_collapsed(profile: StackProfile) -> str:
    """The profile as text: worker and frames between semicolons, then the number of samples."""
    lines = [
        f"worker {worker.worker};{';'.join(frame_label(frame) for frame in stack.frames)} {round(stack.samples)}"
        for worker in profile.workers
        for stack in worker.stacks
        if stack.samples >= 0.5
    ]
    return "".join(f"{line}\n" for line in lines)


def frame_label(frame: Frame) -> str:
    """A frame as text: function, file and line."""
    place = frame.file if frame.line is None else f"{frame.file}:{frame.line}"
    text = f"{frame.function} ({place})" if place else frame.function
    return sanitize.shown(text).replace(";", ",")
