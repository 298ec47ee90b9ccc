"""The report of a comparison, and of a sweep over several results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bottleneck.errors import UsageError
from bottleneck.reports import numbers
from bottleneck.reports.document import (
    Paragraph,
    Section,
    Table,
    render_sections_html,
    render_sections_markdown,
    render_sections_text,
    styled_sections,
)
from bottleneck.reports.writers.layout import StyledReport
from bottleneck.results.comparison import Change, Comparison, Difference, Side, Sweep

_HIGHER_IS_BETTER = "Samples per second with the train step; in brackets, 95 % intervals."


def render_comparison(compared: Comparison | Sweep, format: str) -> str:
    """The report of a comparison or a sweep; it ends with one newline.

    Args:
        compared: What to report.
        format: 'text', 'markdown', 'html' or 'json'.

    Raises:
        UsageError: The format is not one of them.
    """
    if format == "json":
        from bottleneck.results.codec import to_json

        return to_json(compared) + "\n"
    sections = list(comparison_sections(compared))
    if format == "text":
        return render_sections_text(sections)
    if format == "markdown":
        return render_sections_markdown(sections)
    if format == "html":
        return render_sections_html(sections)
    raise UsageError(f"There is no report format {format!r}.", "Use one of text, markdown, html, json.")


def styled_comparison(compared: Comparison | Sweep) -> StyledReport:
    """The report for whoever knows how wide it may be, and whether colours are wanted."""
    return styled_sections(list(comparison_sections(compared)))


def comparison_sections(compared: Comparison | Sweep) -> Iterator[Section]:
    """What the report of a comparison or a sweep says, in every format."""
    yield Paragraph(compared.sentence)
    if isinstance(compared, Sweep):
        yield from _unlike(compared.unlike, [side.label for side in compared.sides])
        yield _sweep_table(compared)
        yield Paragraph(f"{_HIGHER_IS_BETTER} Each against the first.")
        return
    labels = compared.base.label, compared.head.label
    for warning in compared.warnings:
        yield Paragraph(warning, warns=True)
    yield from _unlike(compared.unlike, labels)
    yield _verdicts(compared.base, compared.head)
    yield Table(
        "Experiments",
        ("cached at", *labels, "change", "finding"),
        tuple(_experiment_row(change) for change in compared.experiments),
        numeric=(1, 2, 3),
    )
    yield Paragraph(f"{_HIGHER_IS_BETTER} Findings hold at 95 % over all experiments together.")
    yield Table(
        "What the stages cost",
        ("stage", *labels),
        tuple(
            (
                stage.name,
                numbers.duration_interval(stage.base_cost_s_per_batch),
                numbers.duration_interval(stage.head_cost_s_per_batch),
            )
            for stage in compared.stages
        ),
        numeric=(1, 2),
        folded=True,
    )


def _unlike(unlike: Sequence[Difference], labels: Sequence[str]) -> Iterator[Section]:
    if not unlike:
        return
    told = []
    for difference in unlike:
        values = ", ".join(f"{value} in {label}" for value, label in zip(difference.values, labels, strict=True))
        told.append(f"{difference.key} is {values}")
    yield Paragraph(f"Unlike results were compared: {'; '.join(told)}.", warns=True)


def _verdicts(base: Side, head: Side) -> Table:
    return Table(
        "Verdicts",
        ("", "samples/s", "of what the device can do", "bottleneck"),
        tuple((side.label, *_side_cells(side)) for side in (base, head)),
        numeric=(1, 2),
    )


def _side_cells(side: Side) -> tuple[str, str, str]:
    bottleneck = side.bottleneck or side.state.replace("_", " ")
    return numbers.rate(side.samples_per_s), numbers.percent_interval(side.efficiency), bottleneck


def _experiment_row(change: Change) -> tuple[str, ...]:
    return (
        change.name,
        numbers.rate_with_half_width(change.base),
        numbers.rate_with_half_width(change.head),
        numbers.gain_interval(change.speedup),
        _finding(change),
    )


def _finding(change: Change) -> str:
    return numbers.UNKNOWN if change.finding is None else change.finding.replace("_", " ")


def _sweep_table(compared: Sweep) -> Table:
    rows = []
    for number, (side, change) in enumerate(zip(compared.sides, compared.changes, strict=True)):
        rate, _, bottleneck = _side_cells(side)
        efficiency = numbers.percent(side.efficiency.estimate if side.efficiency else None)
        against = (numbers.gain_interval(change.speedup), _finding(change)) if number else ("", "")
        rows.append((side.label, rate, *against, efficiency, bottleneck))
    return Table(
        "Results",
        ("result", "samples/s", "change", "finding", "of the device", "bottleneck"),
        tuple(rows),
        numeric=(1, 2, 4),
    )
