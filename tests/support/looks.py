"""Diagnoses of planted jobs on machines that others use too: what a short one leaves open, a longer one decides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import bottleneck
from bottleneck import Diagnosis


def diagnose_until(
    is_right: Callable[[Diagnosis], bool], job: Any, budgets_s: Sequence[float], **options: Any
) -> Diagnosis:
    """Diagnose with one budget after the other until what was planted is found, as the report advises.

    Args:
        is_right: Whether a diagnosis finds it.
        job: A pipeline, or a mapping with its fields.
        budgets_s: The budgets [s], each larger than the one before.
        options: For `bottleneck.diagnose`.

    Returns:
        The first diagnosis that is right; else the last, for the test to fail on.
    """
    for budget_s in budgets_s:
        diagnosis = bottleneck.diagnose(job, budget=budget_s, **options)
        if is_right(diagnosis):
            break
    return diagnosis


def names(expected: str) -> Callable[[Diagnosis], bool]:
    """Return a check that a diagnosis calls the job input-bound, and names a stage."""
    return lambda diagnosis: (diagnosis.verdict.state, diagnosis.verdict.bottleneck) == ("input_bound", expected)


def check_verdict(diagnosis: Diagnosis, expected: str) -> None:
    """The one thing that counts: the slow part is named."""
    assert diagnosis.verdict.state == "input_bound", diagnosis.verdict.sentence
    assert diagnosis.verdict.bottleneck == expected, str(diagnosis)
