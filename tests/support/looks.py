"""Diagnoses of planted jobs on machines that others use too: what a short look leaves open, a longer one tells."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bottleneck import Diagnosis


def look_until(
    is_told: Callable[[Diagnosis], bool], look: Callable[[float], Diagnosis], budgets_s: Sequence[float]
) -> Diagnosis:
    """Diagnose with one budget after the other until the diagnosis tells what is asked, as the report advises.

    Args:
        is_told: Whether a diagnosis tells what was planted.
        look: Diagnoses with a budget [s].
        budgets_s: The budgets in order, each larger than the one before.

    Returns:
        The first diagnosis that tells it; else the last, for the test to fail on.
    """
    for budget_s in budgets_s:
        diagnosis = look(budget_s)
        if is_told(diagnosis):
            break
    return diagnosis


def names(expected: str) -> Callable[[Diagnosis], bool]:
    """Whether a diagnosis calls the job input-bound, and names a stage."""
    return lambda diagnosis: (diagnosis.verdict.state, diagnosis.verdict.bottleneck) == ("input_bound", expected)
