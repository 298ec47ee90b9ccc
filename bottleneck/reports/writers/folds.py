"""The folds of the report for a pull request: what opens on a click."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bottleneck.reports import numbers, sanitize, view
from bottleneck.reports.content import functions, gain, io, operators, payload, usage
from bottleneck.results.records import Advice, Result

MAX_ROWS = 30
"""Rows of the table that is not folded, and bars of the chart."""
MAX_LINE = 300
"""Characters of a title or a command that is not folded."""


@dataclass(frozen=True)
class Fold:
    """A part of the report that opens on a click.

    Attributes:
        title: What it holds, as markdown.
        head: Lines that are shown if the fold is, such as the header of a table.
        items: Lines of which as many are shown as there is room for; an item may hold several.
    """

    title: str
    head: tuple[str, ...] = ()
    items: tuple[str, ...] = ()


def all_folds(result: Result) -> Iterator[Fold]:
    """Every fold, in the order in which they are shown; some may have no item."""
    yield Fold("Warnings", items=tuple(f"- {sanitize.markdown(w.message)}" for w in result.warnings))
    yield Fold("What to do next", items=tuple(_advice(advice) for advice in result.advice))
    yield _stages(result)
    yield _transforms(result)
    yield _functions(result)
    yield _payload(result)
    yield _utilisation(result)
    yield from _traces(result)
    yield Fold("Waiting and reading", items=tuple(f"- {sanitize.markdown(text)}" for text in io.sentences(result)))
    yield Fold(
        "Not measured",
        items=tuple(
            f"- {', '.join(sanitize.markdown_code(name) for name in names)}: {sanitize.markdown(reason)}"
            for names, reason in view.unavailable(result)
        ),
    )
    yield _chart(result)
    yield Fold(
        "Environment and pipeline",
        head=("| | |", "|:--|:--|"),
        items=tuple(
            table_row(sanitize.markdown_code(key), sanitize.markdown(view.described(key, value)))
            for part in (result.environment, result.pipeline)
            for key, value in part.items()
        ),
    )
    yield _blocks(result)


def _stages(result: Result) -> Fold:
    explanation = (
        "Times are per batch; in brackets, 95 % intervals. "
        "A stage costs what the loader alone takes for it; exposed is what the job waits for it."
    )
    return Fold(
        "Cost, exposure and gain of each stage",
        head=(
            f"{explanation} {view.waits(result)}".rstrip(),
            *(("", sanitize.markdown(cold)) if (cold := io.cold_epoch(result)) else ()),
            "",
            "| stage | costs (loader alone) | exposed | share of step | gain if free | waiting | finding |",
            "|:--|--:|--:|--:|--:|--:|:--|",
        ),
        items=tuple(
            table_row(
                sanitize.markdown_code(stage.name),
                numbers.duration_interval(stage.cost_s_per_batch),
                numbers.duration_interval(stage.exposed_s_per_batch),
                numbers.percent_interval(stage.exposed_share),
                numbers.gain_interval(stage.gain_if_free),
                _waiting(view.waiting(result, stage)),
                view.finding(stage),
            )
            for stage in view.stages_by_interest(result)
        ),
    )


def _transforms(result: Result) -> Fold:
    note = sanitize.markdown(view.transforms_note(result))
    explanation = "Times are of one call in a worker, outside of the timed rounds; the share is that of its stage."
    return Fold(
        "Single transforms",
        head=(
            f"{explanation} {note}".rstrip(),
            "",
            "| stage | transform | where | calls/sample | a call | share | waiting | gives |",
            "|:--|:--|:--|--:|--:|--:|--:|:--|",
        ),
        items=tuple(
            table_row(
                sanitize.markdown_code(stage),
                sanitize.markdown_code(row.name),
                sanitize.markdown_code(row.path, MAX_LINE),
                numbers.frequency(row.calls_per_sample),
                numbers.duration(row.wall_s_per_call),
                numbers.percent(row.share),
                _waiting(row.waiting),
                sanitize.markdown(row.output, MAX_LINE),
            )
            for stage, rows in view.transforms(result).items()
            for row in rows
        ),
    )


def _functions(result: Result) -> Fold:
    return Fold(
        "Functions with the most own time",
        head=(
            sanitize.markdown(functions.sampling(result)),
            "",
            "| stage | function | where | own time | waiting |",
            "|:--|:--|:--|--:|--:|",
        ),
        items=tuple(
            table_row(
                sanitize.markdown_code(row.stage or ""),
                sanitize.markdown_code(row.function),
                sanitize.markdown_code(row.place, MAX_LINE),
                numbers.percent(row.own_share),
                numbers.percent(row.waiting),
            )
            for row in functions.all_functions(result)
        ),
    )


def _payload(result: Result) -> Fold:
    return Fold(
        "What one batch holds",
        head=(
            sanitize.markdown(payload.summary(result)),
            "",
            "| tensor | shape | type | bytes | what could be saved |",
            "|:--|--:|:--|--:|:--|",
        ),
        items=tuple(
            table_row(
                sanitize.markdown_code(row.place, MAX_LINE),
                sanitize.markdown(row.shape, MAX_LINE),
                sanitize.markdown(row.dtype, MAX_LINE),
                row.size,
                sanitize.markdown(row.saving, MAX_LINE),
            )
            for row in payload.tensors(result)
        ),
    )


def _utilisation(result: Result) -> Fold:
    told = " ".join([usage.used_up(result), usage.memory(result), *usage.missing(result)])
    return Fold(
        "Cores, disk, network and device in each experiment",
        head=(
            sanitize.markdown(told),
            "",
            table_row(*usage.COLUMNS),
            table_row(":--", ":--", *("--:" for _ in usage.COLUMNS[2:])),
        ),
        items=tuple(
            table_row(sanitize.markdown_code(row.name), sanitize.markdown(row.mode), *row.cells)
            for row in usage.rows(result)
        ),
    )


def _traces(result: Result) -> Iterator[Fold]:
    for traced in operators.traced(result):
        yield Fold(
            f"Operators in the traced steps of {traced.name}",
            head=(
                sanitize.markdown(traced.summary),
                "",
                f"| operator | calls/step | {traced.where} | share |",
                "|:--|--:|--:|--:|",
            ),
            items=tuple(
                table_row(
                    sanitize.markdown_code(row.name),
                    numbers.frequency(row.calls_per_step),
                    numbers.duration(row.seconds_per_step),
                    numbers.percent(row.share),
                )
                for row in traced.operators
            ),
        )


def _waiting(share: float | None) -> str:
    return "" if share is None else numbers.percent(share)


def _chart(result: Result) -> Fold:
    bars = [
        (sanitize.mermaid(rung.experiment.name), rung.experiment.coupled.samples_per_s)
        for rung in view.ladder(result)[:MAX_ROWS]
        if rung.experiment.coupled
    ]
    highest = max((speed for _, speed in bars), default=0.0)
    if highest <= 0:
        return Fold("Throughput by cache point")
    labels = ", ".join(label for label, _ in bars)
    values = ", ".join(numbers.bare(speed) for _, speed in bars)
    chart = (
        "```mermaid",
        "xychart-beta horizontal",
        '    title "Throughput with the data cached at each point"',
        f"    x-axis [{labels}]",
        f'    y-axis "samples/s" 0 --> {numbers.bare(highest * 1.05)}',
        f"    bar [{values}]",
        "```",
    )
    return Fold("Throughput by cache point", items=("\n".join(chart),))


def _blocks(result: Result) -> Fold:
    return Fold(
        "Raw blocks",
        head=(
            "| experiment | mode | rounds | blocks | batches | samples | seconds | slowest | fastest |",
            "|:--|:--|--:|--:|--:|--:|--:|--:|--:|",
        ),
        items=tuple(
            table_row(
                sanitize.markdown_code(block.name),
                block.mode,
                numbers.count(block.rounds),
                numbers.count(block.blocks),
                numbers.count(block.batches),
                numbers.count(block.samples),
                numbers.long_duration(block.seconds),
                numbers.rate(block.slowest_samples_per_s),
                numbers.rate(block.fastest_samples_per_s),
            )
            for block in view.block_summaries(result)
        ),
    )


def _advice(advice: Advice) -> str:
    title, why = sanitize.markdown(advice.title), sanitize.markdown(advice.why)
    head = f"- **{title}**: {why} {gain.expected_gain(advice)}".rstrip()
    if len(sanitize.lines(advice.how)) < 2:
        return f"{head}\n  {remedy(advice)}"
    block = sanitize.markdown_block(advice.how).replace("\n", "\n  ")
    return f"{head}\n\n  {block}"


def remedy(advice: Advice) -> str:
    """The remedy in a line, as code; nothing where it has several lines, which are in the fold."""
    return sanitize.markdown_code(advice.how, MAX_LINE) if len(sanitize.lines(advice.how)) == 1 else ""


def table_row(*cells: str) -> str:
    """A row of a table; the cells are markdown already."""
    return f"| {' | '.join(cells)} |"
