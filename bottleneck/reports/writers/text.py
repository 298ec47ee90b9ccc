"""The report for a terminal: the answer first, then the ladder, the stages, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bottleneck.reports import numbers, sanitize, view
from bottleneck.reports.content import functions, gain, io, operators, payload, usage
from bottleneck.reports.writers.layout import (
    Column,
    Line,
    Span,
    Style,
    StyledReport,
    cells,
    fit,
    fit_line,
    paragraph,
    table,
    table_width,
)
from bottleneck.results.records import Result, Stage

MIN_BAR, MAX_BAR = 6, 20
MAX_STAGE_NAME = 21
MIN_NAME = 8
MIN_EXPERIMENT = 14
"""Shorter, `before_collate` and `before_augment` read the same."""
MAX_TRANSFORM_NAME = 32
MAX_TRANSFORMS = 20
MAX_FUNCTIONS = 5
MAX_ADVICE = 4
MAX_OPERATORS = 5
MAX_OPERATOR_NAME = 40

_FINDING_STYLES: dict[str, Style] = {"real": "yellow", "undecided": "cyan"}


def render_text(result: Result, width: int = 80) -> str:
    """The report as plain text.

    Args:
        result: What to report.
        width: Character cells that no line exceeds.
    """
    return styled_text(result).plain(width)


def styled_text(result: Result) -> StyledReport:
    """The report for whoever knows how wide it may be, and whether colours are wanted."""
    return StyledReport(lambda width: _report(result, width))


def _report(result: Result, width: int) -> Iterator[Line]:
    sections = (
        _verdict(result, width),
        _ladder(result, width),
        _stages(result, width),
        *_transforms(result, width),
        _functions(result, width),
        _utilisation(result, width),
        *_traces(result, width),
        _notes(result, width),
        _advice(result, width),
        _closing(result, width),
    )
    first = True
    for section in sections:
        if section:
            if not first:
                yield ()
            yield from section
            first = False


def _verdict(result: Result, width: int) -> list[Line]:
    answer, *details = view.sentences(result)
    made = paragraph(answer, width, style="bold")
    for detail in details:
        made.extend(paragraph(detail, width))
    return made


def _ladder(result: Result, width: int) -> list[Line]:
    rungs = view.ladder(result)
    if not rungs:
        return []
    added = _two_columns(
        [(_name(rung.stage), numbers.duration(_exposed_s(rung.stage))) if rung.stage else ("", "") for rung in rungs]
    )
    columns = [
        Column("cached at", shrinks_to=MIN_EXPERIMENT),
        Column("samples/s"),
        Column("step", align_right=True),
        Column("this stage adds"),
        Column(""),
    ]
    rates = _at_sign([numbers.rate_with_half_width(rung.experiment.coupled) for rung in rungs])
    rows = []
    for rung, speed, adds in zip(rungs, rates, added, strict=True):
        rate, found = rung.experiment.coupled, view.finding(rung.stage)
        rows.append(
            [
                Span(sanitize.one_line(rung.experiment.name), "bold" if _is_bottleneck(result, rung.stage) else ""),
                Span(speed),
                Span(numbers.duration(rate.seconds_per_batch if rate else None)),
                Span(adds),
                Span(found, _FINDING_STYLES.get(found, "dim")),
            ]
        )
    bar_width = min(MAX_BAR, width - table_width(columns, rows) - 2)
    if bar_width >= MIN_BAR:
        columns.insert(2, Column(" " * bar_width))
        for rung, row in zip(rungs, rows, strict=True):
            row.insert(2, Span(numbers.bar(rung.fraction, bar_width), "green"))
    return table(columns, rows, width)


def _stages(result: Result, width: int) -> list[Line]:
    stages = view.stages_by_interest(result)
    if not any(s.cost_s_per_batch or s.exposed_s_per_batch or s.gain_if_free for s in stages):
        return []
    columns = [
        Column("stage", shrinks_to=MIN_NAME),
        Column("costs (loader alone)"),
        Column("exposed"),
        Column("gain if free"),
    ]
    rows = [_stage_row(result, stage, intervals=True) for stage in stages]
    if table_width(columns, rows) > width:
        rows = [_stage_row(result, stage, intervals=False) for stage in stages]
    note = f"Times are per batch; in brackets, 95 % intervals. {view.waiting_stages(result)}".rstrip()
    made = [*table(columns, rows, width), *paragraph(note, width, "  ", "  ", style="dim")]
    if cold := io.cold_epoch(result):
        made.extend(paragraph(cold, width, "  ", "  ", style="dim"))
    return made


def _transforms(result: Result, width: int) -> Iterator[list[Line]]:
    """A table for each stage that has single transforms, and after the last one what is to be said of them."""
    tables = [_transform_table(stage, rows, width) for stage, rows in view.transforms(result).items()]
    if tables and view.transforms_note(result):
        tables[-1].extend(paragraph(view.transforms_note(result), width, "  ", "  ", style="dim"))
    yield from tables


def _transform_table(stage: str, transforms: Sequence[view.TransformRow], width: int) -> list[Line]:
    rows = [
        (
            row.name,
            numbers.frequency(row.calls_per_sample),
            numbers.duration(row.wall_s_per_call),
            numbers.percent(row.share),
            "" if row.waiting is None else numbers.percent(row.waiting),
            row.output,
        )
        for row in transforms[:MAX_TRANSFORMS]
    ]
    more = f"… and {len(transforms) - MAX_TRANSFORMS} more; the other formats list all."
    return _detail_table(
        (f"inside {_short(stage)}", "calls/sample", "a call", "share", "waiting", "gives"),
        rows,
        more if len(transforms) > MAX_TRANSFORMS else "",
        width,
    )


def _functions(result: Result, width: int) -> list[Line]:
    stage, rows = functions.functions_of_bottleneck(result, MAX_FUNCTIONS)
    if not rows:
        return []
    return _detail_table(
        (f"functions in {_short(stage)}" if stage else "functions", "own time", "waiting", "where"),
        [(row.function, numbers.percent(row.own_share), numbers.percent(row.waiting), row.place) for row in rows],
        functions.sampling(result),
        width,
    )


def _detail_table(heads: Sequence[str], rows: Sequence[Sequence[str]], note: str, width: int) -> list[Line]:
    """A table of what is inside a stage: a name, numbers, and a text of the user's at the end.

    Args:
        heads: Of the columns; a column of numbers that is empty in all rows is left out.
        rows: As many texts each.
        note: Said below; empty: nothing.
        width: Character cells.
    """
    last = len(heads) - 1
    kept = [number for number in range(len(heads)) if number in (0, last) or any(row[number] for row in rows)]
    shrinking, right = {"shrinks_to": MIN_NAME}, {"align_right": True}
    columns = [Column(heads[number], **(shrinking if number in (0, last) else right)) for number in kept]
    made = [
        [Span(fit(sanitize.one_line(row[0]), MAX_TRANSFORM_NAME)), *(Span(sanitize.one_line(row[n])) for n in kept[1:])]
        for row in rows
    ]
    return [*table(columns, made, width), *(paragraph(note, width, "  ", "  ", style="dim") if note else ())]


def _utilisation(result: Result, width: int) -> list[Line]:
    used_up = usage.used_up(result)
    made = paragraph(used_up, width) if used_up else []
    for line in usage.missing(result):
        made.extend(paragraph(line, width, "Not seen: ", "  ", style="dim"))
    return made


def _traces(result: Result, width: int) -> Iterator[list[Line]]:
    """The costliest operators, of `device` where that was traced, and what is to be said of all traced steps."""
    for number, traced in enumerate(operators.traced(result)):
        columns = [
            Column(f"operators in {sanitize.one_line(traced.name)}", shrinks_to=MIN_NAME),
            Column("calls/step", align_right=True),
            Column(traced.where, align_right=True),
            Column("share", align_right=True),
        ]
        rows = [
            [
                Span(fit(sanitize.one_line(row.name), MAX_OPERATOR_NAME)),
                Span(numbers.frequency(row.calls_per_step)),
                Span(numbers.duration(row.seconds_per_step)),
                Span(numbers.percent(row.share)),
            ]
            for row in traced.operators[:MAX_OPERATORS]
            if number == 0  # those of raw are the same, and the copy
        ]
        note = paragraph(sanitize.one_line(traced.summary), width, "  ", "  ", style="dim")
        yield [*(table(columns, rows, width) if rows else []), *note]


def _stage_row(result: Result, stage: Stage, intervals: bool) -> list[Span]:
    cost, exposed = stage.cost_s_per_batch, stage.exposed_s_per_batch
    if intervals:
        times = [numbers.duration_interval(cost), numbers.duration_interval(exposed)]
    else:
        times = [numbers.duration(interval.estimate if interval else None) for interval in (cost, exposed)]
    name = Span(sanitize.one_line(stage.name), "bold" if _is_bottleneck(result, stage) else "")
    return [name, *(Span(time) for time in times), Span(numbers.gain_interval(stage.gain_if_free))]


def _notes(result: Result, width: int) -> list[Line]:
    made: list[Line] = []
    for names, reason in view.unavailable(result):
        text = f"{', '.join(sanitize.one_line(name) for name in names)}: {sanitize.one_line(reason)}"
        made.extend(paragraph(text, width, "Not measured: ", "  ", style="dim"))
    for warning in result.warnings:
        made.extend(paragraph(sanitize.one_line(warning.message), width, "Warning: ", "  ", style="yellow"))
    return made


def _advice(result: Result, width: int) -> list[Line]:
    made: list[Line] = []
    for index, advice in enumerate(result.advice[:MAX_ADVICE]):
        first = "Then: " if index else "Next: "
        text = f"{_sentence(advice.title)} {sanitize.one_line(advice.why)} {gain.expected_gain(advice)}".rstrip()
        made.extend(paragraph(text, width, first, " " * 6, style="cyan"))
        for line in sanitize.lines(advice.how):
            made.extend(_code(line, width))
    if len(result.advice) > MAX_ADVICE:
        more = f"… and {len(result.advice) - MAX_ADVICE} more; all advice: --markdown, --html or --json."
        made.extend(paragraph(more, width, style="dim"))
    return made


def _code(line: str, width: int) -> list[Line]:
    if cells(line) + 6 <= width:
        return [fit_line((Span(" " * 6 + line),), width)]
    indent = " " * min(width // 2, 6 + len(line) - len(line.lstrip()))
    return paragraph(line, width, indent, indent)


def _closing(result: Result, width: int) -> list[Line]:
    waits = view.waits(result)
    lines = [payload.summary_where_it_matters(result), waits, *io.sentences(result), view.cost(result)]
    return [line for text in lines if text for line in paragraph(text, width, style="dim")]


def _two_columns(pairs: Sequence[tuple[str, str]]) -> list[str]:
    """Name and value of each pair in one cell, names to the left and values to the right."""
    left = max((cells(name) for name, _ in pairs), default=0)
    right = max((cells(value) for _, value in pairs), default=0)
    return [
        f"{name}{' ' * (left - cells(name))}  {' ' * (right - cells(value))}{value}".rstrip() for name, value in pairs
    ]


def _at_sign(rates: Sequence[str]) -> list[str]:
    """Throughputs aligned at their ±."""
    parts = [rate.partition(" ± ") for rate in rates]
    left = max((cells(estimate) for estimate, _, _ in parts), default=0)
    return [f"{' ' * (left - cells(estimate))}{estimate}{sign}{half}" for estimate, sign, half in parts]


def _name(stage: Stage | None) -> str:
    return _short(stage.name) if stage else ""


def _short(stage: str) -> str:
    return fit(sanitize.one_line(stage), MAX_STAGE_NAME)


def _exposed_s(stage: Stage | None) -> float | None:
    return stage.exposed_s_per_batch.estimate if stage and stage.exposed_s_per_batch else None


def _is_bottleneck(result: Result, stage: Stage | None) -> bool:
    return stage is not None and stage.name == result.verdict.bottleneck


def _sentence(text: str) -> str:
    text = sanitize.one_line(text)
    return text if text.endswith((".", "!", "?")) else f"{text}."
