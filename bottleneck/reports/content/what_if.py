"""What fixing each stage would bring, in samples, hours and money."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bottleneck.analysis.settings import positive
from bottleneck.analysis.what_if import rate_now, what_if
from bottleneck.reports.content.job import on_cpu, rate_unit
from bottleneck.reports.document import Column, Paragraph, Section, Table
from bottleneck.results.format import count, gain_interval, known, long_duration, names
from bottleneck.results.names import COLD
from bottleneck.results.records import Rate, Result

_HOURS = 100
_SHORTEST_EPOCH_S, _WHOLE_MINUTES_S, _HOURS_S = 60.0, 600.0, 7200.0


def possible(result: Result) -> Iterator[Section]:
    """What the job would get without a stage, without several, and without all of its input."""
    now, found = rate_now(result), what_if(result)
    nothing_sure = result.verdict.state == "undecided" and all(not free.stages for free in found)
    if now is None or not found or nothing_sure:
        return
    hours = "hours" if on_cpu(result) else "GPU hours"
    asked = result.evidence.gpu_hour_price
    price = asked if known(asked) and asked > 0 else None
    columns = (
        Column("if it took no time", "name"),
        Column(rate_unit(result), "number"),
        Column("gain", "number"),
        Column("an epoch", "number"),
        Column(f"{_HOURS} {hours} become", "number"),
        Column(f"saved of {count(_HOURS * price)}" if price else "", "number"),
    )
    rows = [("nothing: the job as it is", count(now.samples_per_s), "", _epoch(result, now, 1.0), f"{_HOURS} h", "")]
    for free in found:
        gain = free.gain
        rows.append(
            (
                names(free.stages) if free.stages else "all of the input",
                f"up to {count(now.samples_per_s * gain.estimate)}",
                gain_interval(gain),
                _epoch(result, now, gain.estimate),
                f"{count(_HOURS / gain.estimate)} h",
                f"up to {count(_HOURS * price * (1 - 1 / gain.estimate))}" if price else "",
            )
        )
    named = frozenset(at for at, free in enumerate(found, 1) if free.stages == (result.verdict.bottleneck,))
    note = "Measured with recorded output in the place of these stages and everything else at work, so that no change "
    note += f"to them brings more.{_without_gain(result, [p.stages[0] for p in found if len(p.stages) == 1])}"
    yield Section("What if", (Table(columns, tuple(rows), named), Paragraph(note, "note")), folded=False)


def _without_gain(result: Result, gaining: Iterable[str]) -> str:
    """The stages that were tried and of which none is in the table."""
    alone = [s.name for s in result.stages if s.gain_if_free is not None and s.outer != COLD]
    rest = [name for name in alone if name not in set(gaining)]
    return f" No measurable gain by itself: {names(rest)}." if rest else ""


def _epoch(result: Result, now: Rate, gain: float) -> str:
    """What an epoch takes, where that is long enough to matter."""
    length = positive(result.pipeline, "dataset_length")
    if length is None or length / now.samples_per_s < _SHORTEST_EPOCH_S:
        return ""
    seconds = length / (now.samples_per_s * gain)
    if seconds < _WHOLE_MINUTES_S:
        return long_duration(seconds)
    return f"{count(seconds / 60)} min" if seconds < _HOURS_S else f"{count(seconds / 3600)} h"
