"""What every format shows of a profile: the functions with the most own time, looked up once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bottleneck.reports import numbers
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
    profile = result.evidence.get("profile")
    listed = profile.get("functions") if isinstance(profile, Mapping) else None
    rows = [_row(found) for found in listed if isinstance(found, Mapping)] if isinstance(listed, (list, tuple)) else []
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
    profile = result.evidence.get("profile")
    if not isinstance(profile, Mapping):
        return ""
    samples = numbers.finite(profile.get("samples"))
    by = "a sampler inside the workers (in-process)" if profile.get("sampler") == "in-process" else "py-spy"
    return f"Own time is the share of {numbers.count(samples)} samples of the loader's code, taken by {by}."


def _row(found: Mapping[str, object]) -> FunctionRow | None:
    own_share = numbers.finite(found.get("own_share"))
    if own_share is None:
        return None
    file, line, stage = str(found.get("file") or ""), found.get("line"), found.get("stage")
    return FunctionRow(
        function=str(found.get("function") or ""),
        place=f"{file}:{line}" if isinstance(line, int) else file,
        own_share=own_share,
        waiting=numbers.finite(found.get("waiting_share")),
        stage=stage if isinstance(stage, str) else None,
    )
