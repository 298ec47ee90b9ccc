"""A tuning: what it brought as a ladder, the changed lines, what was tried besides, and what holds the job now."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

from bottleneck.analysis.advice.edits import FIRST, PROVING
from bottleneck.reports.advice import advice, first_in_words, promise_of
from bottleneck.reports.answer import MOST_WARNINGS, STATES, headline, job_facts, job_name, rate_unit, standing
from bottleneck.reports.document import (
    ALL,
    PAGES,
    TERMINAL,
    Bar,
    Column,
    Form,
    Items,
    Paragraph,
    Section,
    Step,
    Steps,
    Table,
)
from bottleneck.reports.step import step_bars
from bottleneck.results.format import (
    count,
    duration,
    gain,
    gain_interval,
    known,
    long_duration,
    names,
    plural,
    rate_with_half_width,
    size,
)
from bottleneck.results.records import Result
from bottleneck.results.tuning import NO_TIME, Rung, Trial, TuningResult

_MEASURED = ("kept", "dropped", "undecided")
_CHANGE = "Change these lines"
_ALTERS = {"numbers": "what is learned", "order": "order of samples", "memory": "memory"}
_LEAST_SETUP_S = 1.0
"""A first step that takes less longer than another one is not worth a sentence."""


# --- the answer ---------------------------------------------------------------------------------------------


def short_answer(result: TuningResult) -> Iterator[Section]:
    """What became of it and which job it is, in one line, and the answer."""
    yield Section("", (*_job(result), Paragraph(result.sentence)), folded=False)


def _job(result: TuningResult) -> tuple[Paragraph, Paragraph]:
    state = {"tuned": "TUNED", "as_before": "UNCHANGED"}.get(_standing(result), "UNFINISHED")
    return Paragraph(f"{state}  {job_name(result)}", "state"), Paragraph(", ".join(job_facts(result)), "note")


def pull_request_answer(result: TuningResult) -> Iterator[Section]:
    """A heading that says what changed, and for which job."""
    heading = Paragraph(_heading(result), "heading")
    facts = Paragraph(", ".join(job_facts(result)), "small")
    answer = Paragraph("" if result.gain is not None else result.sentence)  # the heading says it, and the ladder
    yield Section("", (heading, facts, answer), folded=False)


def _heading(result: TuningResult) -> str:
    job, standing = job_name(result), _standing(result)
    if standing == "ended_early":
        return f"⚪ {job}: the tuning ended early"
    unit = rate_unit(result)
    before, after = (count(rung.rate.samples_per_s) for rung in (result.ladder[0], result.ladder[-1]))
    if standing == "as_before" or result.gain is None:
        return f"⚪ {job}: no change pays ({before} {unit})"
    return f"🟢 {job} is {gain(result.gain.estimate)} faster ({before} → {after} {unit})"


def page_head(result: TuningResult) -> Iterator[Section]:
    """The same, and the answer as what the page is about."""
    state, facts = _job(result)
    yield Section("", (state, Paragraph(result.sentence, "answer"), facts), folded=False)


def _standing(result: TuningResult) -> Literal["tuned", "as_before", "ended_early"]:
    if not result.ladder:
        return "ended_early"
    return "tuned" if len(result.ladder) > 1 else "as_before"


def warnings(result: TuningResult, most: int | None = None) -> Iterator[Section]:
    """Why not to trust a number."""
    messages = tuple(warning.message for warning in result.warnings[:most])
    yield Section("Warnings", (Items(messages, "Warning", warn=True),), folded=False)


def first_warnings(result: TuningResult) -> Iterator[Section]:
    """The first of them."""
    return warnings(result, MOST_WARNINGS)


def changed_lines(result: TuningResult) -> Iterator[Section]:
    """What to paste."""
    yield Section("", (_lines(result, _CHANGE),), folded=False)


def changed_lines_on_a_page(result: TuningResult) -> Iterator[Section]:
    """The same below a title of its own."""
    yield Section(_CHANGE, (_lines(result, ""),), folded=False)


def _lines(result: TuningResult, title: str) -> Steps:
    lines = "\n".join(result.lines)
    return Steps((Step(title, "", lines),) if lines else (), label="")


# --- the ladder ---------------------------------------------------------------------------------------------


def ladder(result: TuningResult) -> Iterator[Section]:
    """All of it as a table, for formats that have room."""
    note = Paragraph(f"{_how(result.ladder)} In brackets, 95 % intervals." if result.ladder else "", "note")
    facts = Items(tuple(_ladder_facts(result.ladder)))
    columns = *_columns(result, PAGES), Column("may alter", on=PAGES), Column("device memory", "number", on=PAGES)
    yield Section("The ladder in numbers", (Table(columns, tuple(_ladder_rows(result))), note, facts))


def ladder_in_short(result: TuningResult) -> Iterator[Section]:
    """The ladder of a terminal, and what a change costs besides its gain."""
    rows = tuple((*row[:3], *map(_estimate, row[3:5]), row[5]) for row in _ladder_rows(result))
    note = Paragraph(_how(result.ladder), "note")
    yield Section("", (Table(_columns(result), rows), note, Items(tuple(_ladder_facts(result.ladder)))), folded=False)


def ladder_for_a_phone(result: TuningResult) -> Iterator[Section]:
    """Three columns, which a telephone shows whole."""
    columns = Column("change", "name"), Column(rate_unit(result), "number"), Column("all together", "number")
    rows = tuple((rung.label, count(rung.rate.samples_per_s), _gain(rung)) for rung in result.ladder)
    yield Section("", (Table(columns, rows), Items(tuple(_ladder_facts(result.ladder)))), folded=False)


def ladder_on_a_page(result: TuningResult) -> Iterator[Section]:
    """The same, which a page has open."""
    return (replace(section, folded=False) for section in ladder(result))


def _altering(ladder: Sequence[Rung]) -> Iterator[str]:
    """What kept changes may alter, what is learned first: `what is learned: batch_size=64`."""
    for kind, said in _ALTERS.items():
        found = [s for rung in ladder for s, alters in zip(rung.settings, rung.alters, strict=False) if alters == kind]
        if found:
            yield f"{said}: {names(found)}"


def _columns(result: TuningResult, bar_on: tuple[Form, ...] = ALL) -> tuple[Column, ...]:
    return (
        Column("change", "name"),
        Column(rate_unit(result), "number"),
        Column("", "bar", on=bar_on),
        Column("this step", "number"),
        Column("all together", "number"),
        Column("promised", "number"),
    )


def _ladder_rows(result: TuningResult) -> Iterator[tuple[str | Bar, ...]]:
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


# --- what a step costs besides its gain ----------------------------------------------------------------------


def _ladder_facts(ladder: Sequence[Rung]) -> Iterator[str]:
    """What kept changes may alter, and a time to begin with."""
    altered = "; ".join(_altering(ladder))
    if altered:
        yield f"May alter {altered}."
    for before, rung in itertools.pairwise(ladder):
        yield from filter(None, [_setup(before, rung)])


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


# --- what was not kept --------------------------------------------------------------------------------------


def others_in_short(result: TuningResult) -> Iterator[Section]:
    """What was tried and not kept, in a sentence each for what was measured and what failed."""
    latest = _latest(result.trials)
    dropped = [_with_gain(trial) for trial in latest if trial.outcome in ("dropped", "undecided")]
    told = [f"Tried and not kept: {', '.join(dropped)}."] if dropped else []
    told += [_said(trial, "failed") for trial in latest if trial.outcome == "failed"]
    told += _untried(result.trials)
    yield Section("", (Items(tuple(told)),), folded=False)


def _with_gain(trial: Trial) -> str:
    if trial.gain is None or not known(trial.gain.estimate):
        return f"{trial.setting} ({trial.reason})" if trial.reason else trial.setting
    doubt = ", undecided" if trial.outcome == "undecided" else ""
    return f"{trial.setting} ({gain(trial.gain.estimate)}{doubt})"


def others(result: TuningResult) -> Iterator[Section]:
    """What was tried and not kept, each with its number or its reason."""
    columns = (
        Column("change", "name"),
        Column("on top of"),
        Column("gain", "number"),
        Column("promised", "number"),
        Column("outcome", "finding"),
    )
    latest = _latest(result.trials)
    dropped = [trial for trial in latest if trial.outcome in ("dropped", "undecided")]
    rows = tuple(_other(result, trial) for trial in dropped)
    said = [_said(trial, "failed") for trial in latest if trial.outcome == "failed"]
    said += [f"{trial.setting}: {trial.reason}." for trial in dropped if trial.reason]
    said += list(_untried(result.trials))
    yield Section("Tried and not kept", (Table(columns, rows), Items(tuple(said))))
    nowhere = tuple(_said(trial, "does not apply") for trial in latest if trial.outcome == "not_applicable")
    yield Section("What does not apply", (Items(nowhere),))


def _other(result: TuningResult, trial: Trial) -> tuple[str, ...]:
    gained = "" if trial.gain is None or not known(trial.gain.estimate) else gain_interval(trial.gain)
    promised = promise_of(trial.predicted, result.before)
    return trial.setting, " + ".join(trial.on_top_of), gained, promised, trial.outcome


def _said(trial: Trial, verb: str) -> str:
    return f"{trial.setting} {verb}: {(trial.reason or '').rstrip('.')}."


def _untried(trials: Sequence[Trial]) -> Iterator[str]:
    untried = [trial for trial in trials if trial.outcome == "not_tried"]
    late = names([trial.setting for trial in untried if trial.reason == NO_TIME])
    if late:
        yield f"There was no time left for {late}: give it a longer --budget."
    yield from (_said(trial, "was not tried") for trial in untried if trial.reason != NO_TIME)


def _latest(trials: Sequence[Trial]) -> list[Trial]:
    """The last trial of each setting: what it was on top of the most."""
    return list({trial.setting: trial for trial in trials}.values())


# --- the job before and now ---------------------------------------------------------------------------------


def now_in_short(result: TuningResult) -> Iterator[Section]:
    """What holds the tuned job, and the first of what is left to do: the last lines of a terminal."""
    left = _left_to_do(result)
    if result.after is not None and left is not None:
        job = "the tuned job" if len(result.ladder) > 1 else "the job as it is"
        state = Paragraph(f"{STATES[standing(result.after)]}  {job}", "state")
        further = first_in_words(left)
        said = *headline(result.after), _whose_budget(result.after), f"Next: {further}" if further else ""
        yield Section("", (state, *map(Paragraph, said)), folded=False)


def now_in_full(result: TuningResult) -> Iterator[Section]:
    """The same with the step as bars."""
    if result.after is not None:
        yield from step_bars(result.after)
    yield from now_in_short(result)


def now_on_a_page(result: TuningResult) -> Iterator[Section]:
    """What holds the tuned job; in HTML also its step as bars."""
    if result.after is not None:
        title = "What holds the job now"
        bars = [replace(block, on=("html",)) for section in step_bars(result.after) for block in section.blocks]
        told = *headline(result.after), _whose_budget(result.after)
        said = Paragraph(title, "state", on=("markdown",)), *map(Paragraph, told)
        yield Section(title, (*said, *bars), folded=False)


def _whose_budget(after: Result) -> str:
    """What a budget in the words of the diagnosis is; empty where they name none."""
    if "--budget" not in after.verdict.sentence:
        return ""
    return "Such a budget is that of `bottleneck diagnose`; a tuning spends a tenth of its own on this."


def next_steps(result: TuningResult) -> Iterator[Section]:
    """What else is advised for the tuned job."""
    left = _left_to_do(result)
    if left is not None:
        yield from (replace(section, folded=True) for section in advice(left))


def before(result: TuningResult) -> Iterator[Section]:
    """What held the job before."""
    if result.before is not None:
        state = Paragraph(f"{STATES[standing(result.before)]}  the job before", "state", on=TERMINAL)
        yield Section("The job before", (state, *map(Paragraph, headline(result.before))))


def _left_to_do(result: TuningResult) -> Result | None:
    """The diagnosis of the tuned job, without advice that this tuning has tried."""
    if result.after is None:
        return None
    tried = {name for trial in result.trials if trial.outcome in _MEASURED for name in trial.changes}
    tried -= {name for trial in result.trials if trial.outcome == "not_tried" for name in trial.changes}
    left = [item for item in result.after.advice if item.id != FIRST]  # of the diagnosis, not of this budget
    left = [item for item in left if not tried.issuperset(PROVING.get(item.id, ("",)))]
    return replace(result.after, advice=tuple(left))


def took(result: TuningResult) -> Iterator[Section]:
    """What it took, and where more is."""
    tried = {trial.setting for trial in result.trials if trial.outcome in (*_MEASURED, "failed")}
    spent = f"Tuned in {long_duration(result.seconds)}, {plural(len(tried), 'setting')} tried."
    more = f"{spent} Intervals, reasons and the job before: --verbose."
    whence = f"{spent} {result.tool.name} {result.tool.version}, {result.created}"
    lines = (
        Paragraph(more, "small", on=("text",)),
        Paragraph(spent, "small", on=("verbose",)),
        Paragraph(whence, "small", on=("markdown", "html")),
    )
    yield Section("", lines, folded=False)
