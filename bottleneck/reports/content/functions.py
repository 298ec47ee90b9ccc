"""What every format shows of a profile: the functions with the most own time, looked up once."""

from __future__ import annotations

from dataclasses import dataclass

from bottleneck.reports import numbers
from bottleneck.results.evidence import FunctionSeen, Profile
from bottleneck.results.records import Result

WORTH_SHOWING = 0.005
"""The share of the samples from which on a function is shown."""


@dataclass(frozen=True)
class FunctionRow:
    """A function in the workers' code; what the evidence does not tell is None."""

    function: str
    place: str
    """File and line."""
    own_share: float
    """Its part of all samples of the user's code, without what it calls."""
    waiting: float | None
    """The part of that in which nothing was computed."""
    stage: str | None


def all_functions(result: Result) -> tuple[FunctionRow, ...]:
    """The functions of the profile, those with the most own time first; none where there is no profile."""
    rows = (_row(found) for found in result.evidence.profile.functions)
    return tuple(row for row in rows if row is not None and row.own_share >= WORTH_SHOWING)


def functions_of_bottleneck(result: Result, most: int) -> tuple[str | None, tuple[FunctionRow, ...]]:
    """The stage that the verdict names and its functions, or no stage and those of all where it has none."""
    rows, named = all_functions(result), result.verdict.bottleneck
    inside = tuple(row for row in rows if row.stage == named)
    # Where stacks do not tell the stage, a function may well belong to this one.
    chosen = tuple(row for row in rows if row.stage in (named, None)) if inside else rows
    return named if inside else None, chosen[:most]


def sampling(result: Result) -> str:
    """How the functions were found, as one sentence; empty where there is no profile."""
    profile = result.evidence.profile
    if profile == Profile():
        return ""
    by = "a sampler inside the workers (in-process)" if profile.sampler == "in-process" else "py-spy"
    return f"Own time is the share of {numbers.count(profile.samples)} samples of the loader's code, taken by {by}."


def _row(found: FunctionSeen) -> FunctionRow | None:
    if found.own_share is None:
        return None
    file = found.file or ""
    return FunctionRow(
        function=found.function or "",
        place=file if found.line is None else f"{file}:{found.line}",
        own_share=found.own_share,
        waiting=found.waiting_share,
        stage=found.stage,
    )
