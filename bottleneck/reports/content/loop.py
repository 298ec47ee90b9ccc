"""What a script's own loop does with a batch, before and after the step of its optimizer."""

from __future__ import annotations

from collections.abc import Iterator

from bottleneck.reports.document import Column, Paragraph, Section, Table
from bottleneck.results.format import duration, percent
from bottleneck.results.records import Result

_COLUMNS = (Column("inside the loop", "name"), Column("time a batch", "number"), Column("share", "number"))
_WORTH_SAYING = 0.1
"""The share of the loop after the optimizer's step from which on it is said what that may be."""


def loop(result: Result) -> Iterator[Section]:
    """The parts of `compute` that can be told apart from outside the loop."""
    found = result.evidence.loop
    parts = (
        ("until the optimizer's step", found.until_optimizer_s),
        ("the optimizer's step", found.optimizer_s),
        ("after it", found.after_optimizer_s),
    )
    whole_s = sum(seconds or 0.0 for _, seconds in parts)
    if not whole_s:
        return
    rows = tuple((name, duration(seconds), percent((seconds or 0.0) / whole_s)) for name, seconds in parts)
    note = Paragraph(" ".join(_sentences((found.after_optimizer_s or 0.0) / whole_s)), "note")
    yield Section("Inside the loop", (Table(_COLUMNS, rows), note))


def _sentences(after_share: float) -> Iterator[str]:
    yield "Time of the host, with the batch on the device already: all of it is in `compute`."
    if after_share >= _WORTH_SAYING:
        yield (
            f"After the optimizer's step goes {percent(after_share)}: what is logged, saved or shown at each step, "
            "schedules, callbacks, and waiting for the device where a number is asked of it, as by `loss.item()`."
        )
