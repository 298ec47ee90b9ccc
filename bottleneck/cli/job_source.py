"""What tells one run of a job from another: its target, and the commit of its code."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from bottleneck.results.records import Result
from bottleneck.results.tuning import TuningResult

if TYPE_CHECKING:
    from bottleneck.api import Attempt
    from bottleneck.tuning.tune import TuningAttempt

AnyFound = TypeVar("AnyFound", bound=Result | TuningResult)

_PATIENCE_S = 5.0


def current_commit() -> str | None:
    """The commit of the working directory, with a plus sign where files differ from it; None outside of git."""
    commit = _git("rev-parse", "--short", "HEAD")
    if not commit:
        return None
    return f"{commit}+" if _git("status", "--porcelain", "--untracked-files=no") else commit


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(
            ("git", *arguments),
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError, UnicodeError):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def with_source(attempt: Attempt, target: str, commit: str | None) -> Attempt:
    """The attempt, whose result says what was diagnosed."""
    return replace(attempt, diagnosis=_from(attempt.diagnosis, _source(target, commit)))


def tuned_from(attempt: TuningAttempt, target: str, commit: str | None) -> TuningAttempt:
    """The attempt, whose tuning and its two diagnoses say of what they are."""
    found, source = attempt.tuning, _source(target, commit)
    before, after = (_from(each, source) if each is not None else None for each in (found.before, found.after))
    return replace(attempt, tuning=_from(replace(found, before=before, after=after), source))


def _source(target: str, commit: str | None) -> dict[str, str]:
    return {"target": target} if commit is None else {"target": target, "commit": commit}


def _from(found: AnyFound, source: dict[str, str]) -> AnyFound:
    return replace(found, pipeline={**found.pipeline, **source})
