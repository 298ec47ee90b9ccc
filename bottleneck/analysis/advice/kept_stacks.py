"""The stacks of a profile as a result keeps them: those of all processes together, the heaviest, within a bound.

Two lists: each function once, and for each stack the positions of its functions in that list.
"""

from __future__ import annotations

import json
from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from bottleneck.results.evidence import MOST_ROWS, Evidence, ProfileStacks, StackRow
from bottleneck.results.stacks import DEEPEST, Frame, Stack, StackProfile

MOST_BYTES = 150_000
"""What they may take in a saved result."""
_LONGEST_TEXT = 200
_INDENT_BYTES = 10
"""What each line is indented by in a saved result."""
LEFT_OUT = Frame("(rare stacks, left out)", "")
"""Stands for what is not kept, so that shares stay those of all samples."""


@dataclass(frozen=True)
class KeptStacks:
    """What a result keeps of the stacks."""

    stacks: tuple[Stack, ...]
    """The heaviest first; one of `LEFT_OUT` alone stands for those that were not kept."""
    left_out_share: float
    """The share of the samples that these had."""


def keep_stacks(profile: StackProfile, most_bytes: int = MOST_BYTES) -> ProfileStacks:
    """The heaviest stacks for the evidence; in a saved result they take at most `most_bytes`."""
    positions: dict[Frame, int] = {}
    seen: list[StackRow] = []
    left_out, room = 0.0, most_bytes
    clipped = (replace(stack, frames=tuple(map(_clipped, stack.frames[:DEEPEST]))) for stack in profile.stacks)
    for stack in sorted(join_stacks(clipped), key=lambda stack: -stack.samples):
        new = [frame for frame in dict.fromkeys(stack.frames) if frame not in positions]
        new_positions = {frame: len(positions) + number for number, frame in enumerate(new)}
        row = _row(stack, ChainMap(positions, new_positions))
        size = _size(row) + sum(map(_size, new))
        if size > room or max(len(seen), len(positions) + len(new)) >= MOST_ROWS:
            left_out += stack.samples
            continue
        room -= size
        positions.update(new_positions)
        seen.append(row)
    return ProfileStacks(frames=tuple(positions), seen=tuple(seen), left_out_samples=left_out)


def join_stacks(stacks: Iterable[Stack]) -> list[Stack]:
    """Each stack of a stage once, with the samples of all that are alike."""
    found: dict[tuple[tuple[Frame, ...], str | None], Stack] = {}
    for stack in stacks:
        before = found.get((stack.frames, stack.stage))
        if before is None:
            found[stack.frames, stack.stage] = stack
            continue
        unknown = before.computing is None or stack.computing is None
        computing = None if unknown else (before.computing or 0.0) + (stack.computing or 0.0)
        found[stack.frames, stack.stage] = replace(stack, samples=before.samples + stack.samples, computing=computing)
    return [stack for stack in found.values() if stack.samples > 0]


def _clipped(frame: Frame) -> Frame:
    return replace(frame, function=_clip(frame.function), file=_clip(frame.file))


def _clip(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 1] + "…"


def _row(stack: Stack, positions: Mapping[Frame, int]) -> StackRow:
    places = " ".join(str(positions[frame]) for frame in stack.frames)
    return StackRow(frames=places, stage=stack.stage, samples=stack.samples, computing=stack.computing)


def _size(row: StackRow | Frame) -> int:
    text = json.dumps(asdict(row), indent=2) + ",\n"  # ASCII: never shorter than what a file takes
    return len(text) + _INDENT_BYTES * text.count("\n")


# --- reading ----------------------------------------------------------------------------------------------


def kept_stacks(evidence: Evidence) -> KeptStacks | None:
    """The stacks in the evidence of a result; None where there are none that make sense."""
    kept = evidence.profile.stacks
    frames = [_clipped(frame) for frame in kept.frames]
    stacks = tuple(stack for row in kept.seen if (stack := _read_stack(row, frames)) is not None)
    if not stacks:
        return None
    left_out = kept.left_out_samples or 0.0
    if left_out > 0:
        stacks = (*stacks, Stack((LEFT_OUT,), None, left_out, None))
    return KeptStacks(stacks, left_out / sum(stack.samples for stack in stacks))


def _read_stack(row: StackRow, frames: Sequence[Frame]) -> Stack | None:
    places = [int(place) for place in (row.frames or "").split()]
    if not row.samples or not places or max(places) >= len(frames):
        return None
    return Stack(tuple(frames[place] for place in places), row.stage, row.samples, row.computing)
