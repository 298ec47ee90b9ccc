"""A comparison of two results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bottleneck.reports.answer import headline, job_facts, job_name
from bottleneck.reports.document import Column, Items, Paragraph, Section, Table
from bottleneck.results.comparison import Change, Comparison, Difference, Side
from bottleneck.results.format import (
    UNKNOWN,
    count,
    duration,
    gain,
    gain_interval,
    percent_interval,
    rate_with_half_width,
    time_interval,
)
from bottleneck.results.records import Result


def changes(compared: Comparison, *, as_part: bool = False) -> Iterator[Section]:
    """Yield faster and slower experiments, and the new bottleneck; as part of a report, with less unfolded."""
    title = "Before and after" if as_part else ""
    heading = Paragraph("" if as_part else _heading(compared, compared.head.label), "heading", on=("markdown",))
    yield Section(title, (heading, Paragraph(compared.sentence, "answer")), folded=False)
    sides = compared.base, compared.head
    labels = [side.label for side in sides]
    doubts = Items((*compared.warnings, *_unlike(compared.unlike, labels)), "Warning", warn=True)
    counted = compared.rate_unit.removesuffix("/s").capitalize()
    note = f"{counted} per second with the train step; in brackets, 95 % intervals. "
    yield Section("Warnings about the comparison", (doubts,), folded=False)
    yield Section("Verdicts", (_verdicts(compared),), folded=False)
    yield Section(
        "Experiments",
        (
            Table(
                (
                    Column("cached at", "code"),
                    *(Column(label, "number") for label in labels),
                    Column("change", "number"),
                    Column("finding", "finding"),
                ),
                tuple(map(_experiment_row, compared.experiments)),
            ),
            Paragraph(f"{note}Findings hold at 95 % over all experiments together.", "note"),
        ),
        folded=as_part,
    )
    yield _costs(compared)


def changes_of_job(compared: Comparison, head: Result) -> Iterator[Section]:
    """Yield the subject of a pull request: the change, one small table, and the present bottleneck."""
    heading = Paragraph(_heading(compared, job_name(head)), "heading")
    columns = (Column("", "code"), Column("before", "number"), Column("after", "number"))
    base, later, throughput = compared.base, compared.head, compared.throughput
    steps = (rate.seconds_per_batch if rate is not None else None for rate in (throughput.base, throughput.head))
    rows = (
        (compared.rate_unit, count(base.samples_per_s), count(later.samples_per_s)),
        ("one step", *map(duration, steps)),
        ("bottleneck", _bottleneck(base), _bottleneck(later)),
    )
    table = Table(columns, rows)
    facts = Paragraph(job_facts(head), "small")
    now = Paragraph(" ".join(headline(head)))
    yield Section("", (heading, facts, table, Paragraph(compared.sentence), now), folded=False)
    doubts = (*compared.warnings, *_unlike(compared.unlike, [compared.base.label, compared.head.label]))
    yield Section("", (Items(doubts, "Warning", warn=True),), folded=False)


_ARROWS = {"faster": "🟢", "slower": "🔴"}


def _heading(compared: Comparison, job: str) -> str:
    """Return the change in one line, with the throughput before and after."""
    change = compared.throughput
    mark = _ARROWS.get(change.finding or "", "⚪")
    before, after = (rate.samples_per_s if rate is not None else None for rate in (change.base, change.head))
    speeds = f"({count(before)} → {count(after)} {compared.rate_unit})"
    if change.finding is None or change.speedup is None or change.finding == "undecided":
        return f"{mark} Whether {job} became faster is undecided {speeds}"
    if change.finding == "within_noise":
        return f"{mark} {job} is as fast as before {speeds}"
    factor = change.speedup.estimate if change.finding == "faster" else 1 / change.speedup.estimate
    return f"{mark} {job} is {gain(factor)} {change.finding} {speeds}"


def _costs(compared: Comparison) -> Section:
    rows = tuple(
        (stage.name, time_interval(stage.base_cost_s_per_batch), time_interval(stage.head_cost_s_per_batch))
        for stage in compared.stages
    )
    labels = compared.base.label, compared.head.label
    columns = (Column("stage", "code"), *(Column(label, "interval") for label in labels))
    return Section("What the stages cost", (Table(columns, rows),))


def _unlike(unlike: Sequence[Difference], labels: Sequence[str]) -> Iterator[str]:
    if not unlike:
        return
    parts = []
    for difference in unlike:
        values = ", ".join(f"{value} in {label}" for value, label in zip(difference.values, labels, strict=True))
        parts.append(f"{difference.key} is {values}")
    yield f"The compared results differ: {'; '.join(parts)}."


def _verdicts(compared: Comparison) -> Table:
    sides = compared.base, compared.head
    # It says nothing where model and workers share the cores.
    share = () if all(side.on_cpu for side in sides) else (Column("of what the device can do", "number"),)
    columns = (Column("", "code"), Column(compared.rate_unit, "number"), *share, Column("bottleneck"))
    rows = []
    for side in sides:
        shares = (percent_interval(None if side.on_cpu else side.efficiency),) if share else ()
        rows.append((side.label, count(side.samples_per_s), *shares, _bottleneck(side)))
    return Table(columns, tuple(rows))


def _bottleneck(side: Side) -> str:
    return side.bottleneck or side.state.replace("_", " ")


def _experiment_row(change: Change) -> tuple[str, ...]:
    rates = rate_with_half_width(change.base), rate_with_half_width(change.head)
    finding = UNKNOWN if change.finding is None else change.finding.replace("_", " ")
    return change.name, *rates, gain_interval(change.speedup), finding
