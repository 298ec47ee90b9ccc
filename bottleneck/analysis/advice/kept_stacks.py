"""The stacks of a profile as a result keeps them: those of all processes together, the heaviest, within a bound.

Two lists: each function once, and for each stack the positions of its functions in that list. A saved result comes
from anywhere, so that reading takes nothing of it on trust.
"""

from __future__ import annotations

import json
from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bottleneck.analysis.lookup import list_at, number_at, rows_at, text_at
from bottleneck.results.stacks import DEEPEST, Frame, Stack, StackProfile

MOST_BYTES = 150_000
"""What they may take in a saved result."""
MOST_STACKS = 5_000
_MOST_FRAMES, _MOST_PLACES = 5_000, 100_000
"""More functions, and more mentions of them in stacks, than `MOST_BYTES` hold; what lies beyond is not read."""
_LONGEST_TEXT = 200
_INDENT_BYTES = 10
"""What each line is indented by in a saved result."""
_MOST_SAMPLES = 1e12
LEFT_OUT = Frame("(rare stacks, left out)", "", None)
"""Stands for what is not kept, so that shares stay those of all samples."""


@dataclass(frozen=True)
class KeptStacks:
    """What a result keeps of the stacks.

    Attributes:
        stacks: The heaviest first; one of `LEFT_OUT` alone stands for those that were not kept.
        left_out_share: The share of the samples that these had.
    """

    stacks: tuple[Stack, ...]
    left_out_share: float


def keep_stacks(profile: StackProfile, most_bytes: int = MOST_BYTES) -> dict[str, Any]:
    """Return the stacks as plain values for the evidence.

    Args:
        profile: What the profiler saw.
        most_bytes: What they may take in a saved result.
    """
    positions: dict[Frame, int] = {}
    frames: list[dict[str, Any]] = []
    seen: list[dict[str, Any]] = []
    left_out, room = 0.0, most_bytes
    for stack in _joined(profile):
        new = [frame for frame in dict.fromkeys(stack.frames) if frame not in positions]
        new_positions = {frame: len(positions) + number for number, frame in enumerate(new)}
        row = _row(stack, ChainMap(positions, new_positions))
        added = [_frame_row(frame) for frame in new]
        size = sum(_size(value) for value in (row, *added))
        if size > room or len(seen) >= MOST_STACKS:
            left_out += stack.samples
            continue
        room -= size
        positions.update(new_positions)
        frames.extend(added)
        seen.append(row)
    return {"frames": frames, "seen": seen, "left_out_samples": left_out}


def _joined(profile: StackProfile) -> list[Stack]:
    """Return every stack once, the heaviest first."""
    found: dict[tuple[tuple[Frame, ...], str | None], Stack] = {}
    for worker in profile.workers:
        for one in worker.stacks:
            stack = replace(one, frames=tuple(_clipped(frame) for frame in one.frames[:DEEPEST]))
            before = found.get((stack.frames, stack.stage))
            if before is not None:
                unknown = before.computing is None or stack.computing is None
                computing = None if unknown else (before.computing or 0.0) + (stack.computing or 0.0)
                stack = replace(stack, samples=before.samples + stack.samples, computing=computing)
            found[stack.frames, stack.stage] = stack
    return sorted((stack for stack in found.values() if stack.samples > 0), key=lambda stack: -stack.samples)


def _clipped(frame: Frame) -> Frame:
    return replace(frame, function=_clip(frame.function), file=_clip(frame.file))


def _clip(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 1] + "…"


def _row(stack: Stack, positions: Mapping[Frame, int]) -> dict[str, Any]:
    return {
        # As a text: a list of numbers would take a line for each in a file that is indented.
        "frames": " ".join(str(positions[frame]) for frame in stack.frames),
        "stage": stack.stage,
        "samples": stack.samples,
        "computing": stack.computing,
    }


def _frame_row(frame: Frame) -> dict[str, Any]:
    return {"function": frame.function, "file": frame.file, "line": frame.line}


def _size(row: Mapping[str, Any]) -> int:
    text = json.dumps(row, indent=2) + ",\n"  # ASCII: never shorter than what a file takes
    return len(text) + _INDENT_BYTES * text.count("\n")


# --- reading ----------------------------------------------------------------------------------------------


def kept_stacks(evidence: Mapping[str, Any]) -> KeptStacks | None:
    """Return the stacks in the evidence of a result; None where there are none that make sense."""
    frames = [_read_frame(row) for row in list_at(evidence, "profile", "stacks", "frames")[:_MOST_FRAMES]]
    seen = rows_at(evidence, "profile", "stacks", "seen")[:MOST_STACKS]
    stacks = tuple(_read_stacks(seen, frames))
    if not stacks:
        return None
    left_out = _samples(number_at(evidence, "profile", "stacks", "left_out_samples")) or 0.0
    if left_out > 0:
        stacks = (*stacks, Stack((LEFT_OUT,), None, left_out, None))
    return KeptStacks(stacks, left_out / sum(stack.samples for stack in stacks))


def _read_stacks(rows: Sequence[Mapping[str, Any]], frames: Sequence[Frame]) -> Iterator[Stack]:
    room = _MOST_PLACES
    for row in rows:
        stack = _read_stack(row, frames)
        if stack is not None:
            room -= len(stack.frames)
            if room < 0:
                return
            yield stack


def _read_frame(row: object) -> Frame:
    line = number_at(row, "line")
    function, file = (_clip(text_at(row, key) or "") for key in ("function", "file"))
    return Frame(function or "?", file, int(line) if line is not None else None)


def _read_stack(row: Mapping[str, Any], frames: Sequence[Frame]) -> Stack | None:
    samples = _samples(number_at(row, "samples"))
    places = (text_at(row, "frames") or "").split(None, DEEPEST)[:DEEPEST]
    known = all(place.isascii() and place.isdigit() and len(place) < 8 and int(place) < len(frames) for place in places)
    if not samples or not places or not known:
        return None
    inside = tuple(frames[int(place)] for place in places)
    return Stack(inside, text_at(row, "stage"), samples, _samples(number_at(row, "computing")))


def _samples(number: float | None) -> float | None:
    return number if number is not None and 0 <= number < _MOST_SAMPLES else None
