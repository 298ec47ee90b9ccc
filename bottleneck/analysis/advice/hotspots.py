"""The functions in which the workers spend their own time, from the stacks that a profiler saw."""

from __future__ import annotations

import re
from collections.abc import Collection

from bottleneck.analysis.advice.kept_stacks import keep_stacks
from bottleneck.results.evidence import FunctionSeen, Profile
from bottleneck.results.names import span_of
from bottleneck.results.stacks import Frame, StackProfile

MOST_FUNCTIONS = 50
_FEWEST_SAMPLES = 10
"""Fewer do not tell what part of them was waiting."""
_ADDRESS = re.compile(r"0x[0-9a-f]+", re.IGNORECASE)


def find_hotspots(profile: StackProfile, stages: Collection[str] = ()) -> tuple[FunctionSeen, ...]:
    """Return the functions with the most own time, those with the most first.

    Args:
        profile: What the profiler saw.
        stages: The stages that are measured; the work of others is part of one of them.
    """
    own: dict[tuple[Frame, str | None], tuple[float, float | None]] = {}
    for worker in profile.workers:
        for stack in worker.stacks:
            stage = None if stack.stage is None else span_of(stack.stage, stages)
            key = _innermost_named(stack.frames), stage
            samples, computing = own.get(key, (0.0, 0.0))
            unknown = computing is None or stack.computing is None
            both = None if unknown else (computing or 0.0) + (stack.computing or 0.0)
            own[key] = samples + stack.samples, both
    total = profile.samples
    found = [
        FunctionSeen(
            function=frame.function, file=frame.file, line=frame.line, own_share=samples / total,
            waiting_share=waiting_part(samples, computing), stage=stage,
        )
        for (frame, stage), (samples, computing) in own.items()
        if samples > 0
    ]  # fmt: skip
    found.sort(key=lambda spot: (-(spot.own_share or 0.0), spot.file or "", spot.line or 0, spot.function or ""))
    return tuple(found[:MOST_FUNCTIONS])


def _innermost_named(frames: tuple[Frame, ...]) -> Frame:
    """Native code without symbols shows as an address; its time is that of what called it."""
    return next((frame for frame in reversed(frames) if not _ADDRESS.fullmatch(frame.function)), frames[-1])


def waiting_part(samples: float, computing: float | None) -> float | None:
    """The part of some samples in which nothing was computed; None where that is not known, or of too few to tell."""
    if computing is None or samples < _FEWEST_SAMPLES:
        return None
    return min(1.0, max(0.0, 1.0 - computing / samples))


def summarise_profile(profile: StackProfile, stages: Collection[str] = ()) -> Profile:
    """Return what is kept of a profile as evidence.

    Args:
        profile: What the profiler saw.
        stages: The stages that are measured.
    """
    return Profile(
        sampler=profile.sampler,
        rate_hz=profile.rate_hz,
        seconds=profile.seconds,
        samples=profile.samples,
        processes=len(profile.workers),
        in_workers=profile.in_workers,
        functions=find_hotspots(profile, stages),
        stacks=keep_stacks(profile),
    )
