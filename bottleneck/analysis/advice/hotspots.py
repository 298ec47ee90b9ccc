"""The functions in which the workers spend their own time, from the stacks that a profiler sampled."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace

from bottleneck.analysis.advice.kept_stacks import join_stacks, keep_stacks
from bottleneck.results.evidence import FunctionSeen, Profile
from bottleneck.results.names import span_of
from bottleneck.results.stacks import Frame, StackProfile

MOST_FUNCTIONS = 50
_FEWEST_SAMPLES = 10
"""Fewer do not show what part of them was waiting."""
_ADDRESS = re.compile(r"0x[0-9a-f]+", re.IGNORECASE)


def find_hotspots(profile: StackProfile, stages: Collection[str] = ()) -> tuple[FunctionSeen, ...]:
    """The functions with the most own time first.

    Args:
        profile: The samples.
        stages: The stages that are measured; the work of others is part of one of them.
    """
    own = [
        replace(stack, frames=(_innermost_named(stack.frames),), stage=stack.stage and span_of(stack.stage, stages))
        for stack in profile.stacks
    ]
    total = profile.samples
    found = [
        FunctionSeen(
            function=stack.frames[0].function, file=stack.frames[0].file, line=stack.frames[0].line, stage=stack.stage,
            own_share=stack.samples / total, waiting_share=waiting_part(stack.samples, stack.computing),
        )
        for stack in join_stacks(own)
    ]  # fmt: skip
    found.sort(key=lambda spot: (-(spot.own_share or 0.0), spot.file or "", spot.line or 0, spot.function or ""))
    return tuple(found[:MOST_FUNCTIONS])


def _innermost_named(frames: tuple[Frame, ...]) -> Frame:
    """Native code without symbols shows as an address; its time is that of what called it."""
    return next((frame for frame in reversed(frames) if not _ADDRESS.fullmatch(frame.function)), frames[-1])


def waiting_part(samples: float, computing: float | None) -> float | None:
    """The part of some samples in which nothing was computed; None where that is unknown, or of too few."""
    if computing is None or samples < _FEWEST_SAMPLES:
        return None
    return min(1.0, max(0.0, 1.0 - computing / samples))


def summarise_profile(profile: StackProfile, stages: Collection[str] = ()) -> Profile:
    """What is kept of a profile as evidence; `stages` are those that are measured."""
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
