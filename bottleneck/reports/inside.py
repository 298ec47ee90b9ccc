"""Code inside the stages and the loop: single transforms, lines, functions, operators."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from bottleneck.analysis.advice.wall_clock import STEP, WAITING
from bottleneck.analysis.settings import collecting_share
from bottleneck.reports.document import PAGES, Column, Items, Paragraph, Section, Table
from bottleneck.results.evidence import FunctionSeen, LineSeen, Operator, TracedSteps, TransformSeen
from bottleneck.results.format import duration, frequency, percent, whole
from bottleneck.results.names import RAW
from bottleneck.results.records import Result

WORTH_SHOWING = 0.2
"""Share of waiting above which it is shown."""
_MAX_TRANSFORMS, _MAX_ROWS = 20, 5
"""Rows that a terminal shows: of a stage's transforms, and of functions or operators."""
_MIN_SHARE = 0.005
"""Share above which a function or an operator is shown."""

_TRANSFORM_COLUMNS = (
    Column("where", "path", on=PAGES),
    Column("calls/sample", "number"),
    Column("a call", "number"),
    Column("share", "number"),
    Column("waiting", "number"),
    Column("gives"),
)
_TRANSFORM_TIMES = "Times are of one call in a worker, outside of the timed rounds; the share is that of its stage."


def worth_showing(share: float | None) -> str:
    """Return a share of waiting; empty if it is not worth a word."""
    return percent(share) if share is not None and share >= WORTH_SHOWING else ""


def transforms(result: Result) -> Iterator[Section]:
    """Yield a table for each stage that has single transforms, in the order in which they are kept."""
    rows: dict[str, list[tuple[str, ...]]] = {}
    for found in result.evidence.transforms:
        rows.setdefault(found.stage or "", []).append(_transform_row(found))
    if not rows:
        return
    tables = [
        Table((Column(f"inside {stage}", "code"), *_TRANSFORM_COLUMNS), tuple(found), most=_MAX_TRANSFORMS)
        for stage, found in rows.items()
    ]
    note = Paragraph(result.evidence.transforms_note or "", "note")
    yield Section("Single transforms", (*tables, note, Paragraph(_TRANSFORM_TIMES, "note", on=PAGES)))


def _transform_row(found: TransformSeen) -> tuple[str, ...]:
    return (
        found.name or "",
        found.path or "",
        frequency(found.calls_per_sample),
        duration(found.wall_s_per_call),
        percent(found.share),
        worth_showing(found.waiting_share),
        found.output or "",
    )


_WORTH_A_LINE, _WORTH_NAMING = 0.1, 0.03
"""Shares of the wall clock: above the first, an unusual part comes first; above the second, a part is named."""


def wall_clock_in_words(result: Result) -> str:
    """Return the parts of a script's wall clock, as a sentence; empty if nothing is unusual."""
    found = [part for part in result.evidence.wall_clock if (part.share or 0.0) >= _WORTH_NAMING]
    if all(part.name in (WAITING, STEP) or (part.share or 0.0) <= _WORTH_A_LINE for part in found):
        return ""
    ordered = sorted(found, key=lambda part: -(part.share or 0.0))
    return f"Where the wall clock goes: {', '.join(f'{part.name} {percent(part.share)}' for part in ordered)}."


def unseen_in_words(result: Result) -> str:
    """Return the unobserved part of a script, as a sentence; empty if it is of no interest."""
    between, others = result.evidence.loop.between, result.evidence.loop.others
    if between.ends != 0 or between.path is None or any(one.evaluations for one in others):
        return ""
    steps = "N, with more steps than an epoch has," if between.skip_steps is None else whole(between.skip_steps)
    raw = result.coupled(RAW)
    lasts = f", about {duration(between.skip_steps * raw.seconds_per_batch)}," if raw and between.skip_steps else ""
    return (
        f"The code after each epoch, from line {whole(between.line)} of {PurePath(between.path).name} on, was not "
        f"seen. --skip-steps {steps} lets the first epoch{lasts} end before measuring starts."
    )


def wall_clock(result: Result) -> Iterator[Section]:
    """Yield the wall clock of a script, each of its parts for a step of the training."""
    rows = tuple(
        (part.name or "", duration(part.s_per_step), percent(part.share), part.place or "")
        for part in result.evidence.wall_clock
    )
    if rows:
        columns = (Column("wall clock", "code"), Column("each step", "number"), Column("share", "number"))
        yield Section("Where the wall clock goes", (Table((*columns, Column("where", "path")), rows),))


_WORTH_COLLECTING = 0.02
"""Part of a process's time."""
_LINE_COLUMNS = (
    Column("share", "number"),
    Column("waiting", "number"),
    Column("code", "path"),
    Column("file", "path", on=PAGES),
)


def lines(result: Result) -> Iterator[Section]:
    """Yield a table for each stage that the verdict names, the costliest line first; then the time outside lines."""
    named = dict.fromkeys((result.verdict.bottleneck, *result.verdict.contributors))
    tables = tuple(
        Table((Column(f"line in {stage}", "path"), *_LINE_COLUMNS), rows)
        for stage in named
        if (rows := tuple(_line_row(found) for found in result.evidence.lines if stage and found.stage == stage))
    )
    if tables:
        note = "Shares of the stage, by samples of the workers outside of the timed rounds."
        yield Section("Costliest lines", (*tables, Paragraph(note, "note", on=PAGES)))
    yield Section("Collections of garbage", (Items(tuple(_collections(result))),))


def _collections(result: Result) -> Iterator[str]:
    """Yield the time of garbage collections, which no line shows, if it matters."""
    seen = result.evidence.collections
    each = f", with {whole(seen.objects)} objects alive" if seen.objects else ""
    of_main = ("the main process", collecting_share(result), "" if seen.share else each)
    for where, share, alive in (("the workers", seen.share or 0.0, each), of_main):
        if share >= _WORTH_COLLECTING:
            yield f"Collecting garbage takes {duration(60 * share)} of each minute of {where}{alive}."


def _line_row(found: LineSeen) -> tuple[str, ...]:
    path = (found.path or "").rpartition("-packages/")[2] if found.library else found.path or ""
    place = PurePath(path).name if found.line is None else f"{PurePath(path).name}:{found.line}"
    return (
        f"{place} (library)" if found.library else place,
        percent(found.share),
        worth_showing(found.waiting_share),
        found.code or "",
        path,
    )


def functions(result: Result) -> Iterator[Section]:
    """Yield functions of the workers' code, the most own time first."""
    profile = result.evidence.profile
    rows = [_function_row(f) for f in profile.functions if f.own_share is not None and f.own_share >= _MIN_SHARE]
    columns = (
        Column("function", "path"),
        Column("stage", "code"),
        Column("own time", "number"),
        Column("where", "path"),
    )
    if rows:
        by = "a sampler inside the workers" if profile.sampler == "in-process" else "py-spy"
        note = f"Own time is the share of {whole(profile.samples)} samples of the loader's code, taken by {by}."
        table = Table(columns, tuple(rows), most=_MAX_ROWS)
        yield Section("Functions with the most own time", (table, Paragraph(note, "note")))


def _function_row(found: FunctionSeen) -> tuple[str, ...]:
    file = found.file or ""
    return (
        found.function or "",
        found.stage or "",
        percent(found.own_share),
        file if found.line is None else f"{file}:{found.line}",
    )


def operators(result: Result) -> Iterator[Section]:
    """Yield the traced experiments, from the device outwards. Those of `raw` are the same, and the copy."""
    trace = result.evidence.trace
    for name, found, most in (("device", trace.device, _MAX_ROWS), ("raw", trace.raw, 0)):
        rows = tuple(_operator_row(item) for item in found.top if item.share is not None and item.share >= _MIN_SHARE)
        if rows:  # a step may call nothing of torch's
            columns = (
                Column(f"operators in {name}", "code"),
                Column("calls/step", "number"),
                Column("on the CPU" if found.device_busy_share is None else "on the device", "number"),
                Column("share", "number"),
            )
            yield Section(
                f"Operators in the traced steps of {name}",
                (Table(columns, rows, most=most), Paragraph(" ".join(_trace_sentences(name, found)), "note")),
            )


def _operator_row(found: Operator) -> tuple[str, ...]:
    own_s = found.self_s_per_step if found.device_s_per_step is None else found.device_s_per_step
    return found.name or "", frequency(found.calls_per_step), duration(own_s), percent(found.share)


def _trace_sentences(name: str, found: TracedSteps) -> Iterator[str]:
    steps, step_s = whole(found.steps), duration(found.seconds_per_step)
    yield f"Traced: {steps} steps of {name}, {step_s} each under the profiler."
    busy, launches = found.device_busy_share, found.launches_per_step
    if busy is not None:
        yield f"The device computes {percent(busy)} of that time and is idle {percent(1 - busy)}."
    if launches is not None:
        yield f"A step launches {whole(launches)} kernels."
    if found.synchronisations:
        waits = (f"{wait.name or ''}, {frequency(wait.calls_per_step)} a step" for wait in found.synchronisations)
        yield f"The host waits for the device in: {'; '.join(waits)}."
