"""The ladder of a tuning: the job as it is, then each change that was kept, measured in turns."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from bottleneck.reports.advice import promise_of
from bottleneck.reports.answer import rate_unit
from bottleneck.reports.document import PAGES, Bar, Column, Items, Paragraph, Section, Table
from bottleneck.results.format import (
    count,
    duration,
    gain_interval,
    names,
    percent,
    plural,
    rate_with_half_width,
    size,
)
from bottleneck.results.tuning import Losses, Rung, TuningResult

_ALTERS = {"numbers": "what is learned", "order": "order of samples", "memory": "memory"}
_LEAST_DIFFERENCE = 0.001
_LEAST_SETUP_S = 1.0
"""A first step that takes less longer than another one is not worth a sentence."""


def ladder(result: TuningResult) -> Iterator[Section]:
    """All of it as a table, for formats that have room."""
    note = Paragraph(f"{_how(result.ladder)} In brackets, 95 % intervals." if result.ladder else "", "note")
    facts = Items((*_facts(result.ladder), *_same(result.ladder)))
    yield Section("The ladder in numbers", (_table(result), note, facts))


def ladder_in_short(result: TuningResult) -> Iterator[Section]:
    """The ladder of a terminal, and what a change costs beside its gain."""
    columns = (
        Column("change", "name"),
        Column(rate_unit(result), "number"),
        Column("", "bar"),
        Column("this step", "number"),
        Column("all together", "number"),
        Column("promised", "number"),
    )
    rows = tuple((*row[:3], *map(_estimate, row[3:5]), row[5]) for row in _rows(result))
    note = Paragraph(_how(result.ladder), "note")
    yield Section("", (Table(columns, rows), note, Items(tuple(_facts(result.ladder)))), folded=False)


def ladder_for_a_phone(result: TuningResult) -> Iterator[Section]:
    """Three columns, which a telephone shows whole."""
    columns = Column("change", "name"), Column(rate_unit(result), "number"), Column("all together", "number")
    rows = tuple((rung.label, count(rung.rate.samples_per_s), _gain(rung)) for rung in result.ladder)
    yield Section("", (Table(columns, rows), Items(tuple(_facts(result.ladder)))), folded=False)


def ladder_on_a_page(result: TuningResult) -> Iterator[Section]:
    """The same table, which a page has open."""
    return (replace(section, folded=False) for section in ladder(result))


def altering(ladder: Sequence[Rung]) -> Iterator[str]:
    """What kept changes may alter, what is learned first: `what is learned: batch_size=64`."""
    for kind, said in _ALTERS.items():
        found = [s for rung in ladder for s, alters in zip(rung.settings, rung.alters, strict=False) if alters == kind]
        if found:
            yield f"{said}: {names(found)}"


# --- the table ----------------------------------------------------------------------------------------------


def _table(result: TuningResult) -> Table:
    columns = (
        Column("change", "name"),
        Column(rate_unit(result), "number"),
        Column("", "bar", on=PAGES),
        Column("this step", "number"),
        Column("all together", "number"),
        Column("promised", "number"),
        Column("may alter", on=PAGES),
        Column("device memory", "number", on=PAGES),
    )
    return Table(columns, tuple(_rows(result)))


def _rows(result: TuningResult) -> Iterator[tuple[str | Bar, ...]]:
    most = max((rung.rate.samples_per_s for rung in result.ladder), default=1.0)
    for rung in result.ladder:
        altered = [_ALTERS[alters] for alters in dict.fromkeys(rung.alters) if alters in _ALTERS]
        yield (
            rung.label,
            rate_with_half_width(rung.rate),
            Bar(rung.rate.samples_per_s / most if most and len(result.ladder) > 1 else None),
            gain_interval(rung.gain) if rung.settings else "",
            _gain(rung),
            promise_of(rung.predicted, result.before),
            ", ".join(altered),
            "" if rung.peak_device_bytes is None else size(rung.peak_device_bytes),
        )


def _gain(rung: Rung) -> str:
    return gain_interval(rung.total) if rung.settings else ""


def _estimate(cell: str | Bar) -> str | Bar:
    """The number without its interval."""
    return cell.partition(" (")[0] if isinstance(cell, str) else cell


def _how(ladder: Sequence[Rung]) -> str:
    if not ladder:
        return ""
    rounds = len({block.round for block in ladder[0].rate.blocks})
    promised = " Promised: what the diagnosis of the job expected." if any(rung.predicted for rung in ladder) else ""
    return f"Measured in turns, {plural(rounds, 'round')}.{promised}"


# --- what a step costs beside its gain ----------------------------------------------------------------------


def _facts(ladder: Sequence[Rung]) -> Iterator[str]:
    """What kept changes may alter, a time to begin with, and other losses."""
    altered = "; ".join(altering(ladder))
    if altered:
        yield f"May alter {altered}."
    for before, rung in itertools.pairwise(ladder):
        yield from filter(None, (_setup(before, rung), _other_losses(rung)))


def _same(ladder: Sequence[Rung]) -> Iterator[str]:
    """The changes whose losses are those from before."""
    for rung in ladder:
        if rung.losses is not None and rung.losses.base and not _difference(rung.losses):
            yield f"{rung.label}: the losses are the same, bit for bit, {_over(rung.losses)}."


def _setup(before: Rung, rung: Rung) -> str:
    if rung.setup_s is None or rung.setup_s - (before.setup_s or 0.0) < _LEAST_SETUP_S:
        return ""
    took_s = rung.setup_s - (before.setup_s or 0.0)
    saved_s = _s_per_sample(before) - _s_per_sample(rung)
    batch = rung.rate.seconds_per_batch * rung.rate.samples_per_s
    lasts = duration(took_s)
    if saved_s <= 0 or batch <= 0:
        return f"{rung.label}: the first step takes {lasts} longer."
    steps = math.ceil(took_s / (saved_s * batch))
    return f"{rung.label}: the first step takes {lasts} longer, which is earned back after {plural(steps, 'step')}."


def _s_per_sample(rung: Rung) -> float:
    return 1 / rung.rate.samples_per_s if rung.rate.samples_per_s > 0 else 0.0


def _other_losses(rung: Rung) -> str:
    differ = _difference(rung.losses) if rung.losses is not None else 0.0
    if rung.losses is None or not differ:
        return ""
    last = f"the last is {count(rung.losses.changed[-1])}, before {count(rung.losses.base[-1])}"
    most = f"{percent(differ)} at most" if differ >= _LEAST_DIFFERENCE else f"less than {percent(_LEAST_DIFFERENCE)}"
    return f"{rung.label}: the losses differ by {most} {_over(rung.losses)}; {last}."


def _over(losses: Losses) -> str:
    return f"over {plural(len(losses.base), 'step')} on the same batches from the same weights"


def _difference(losses: Losses) -> float:
    """The largest difference between the two losses of a step, as a part of the one before the change."""
    pairs = zip(losses.base, losses.changed, strict=False)
    return max((abs(b - a) / max(abs(a), 1e-12) for a, b in pairs), default=0.0)
