"""A tuning: what it brought, the changed lines, what was tried besides, and what holds the job now."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

from bottleneck.analysis.advice.edits import FIRST
from bottleneck.analysis.advice.proof import PROVING
from bottleneck.reports.advice import advice, first_in_words, promise_of
from bottleneck.reports.answer import MOST_WARNINGS, STATES, headline, job_facts, job_name, rate_unit, standing
from bottleneck.reports.document import TERMINAL, Column, Items, Paragraph, Section, Step, Steps, Table
from bottleneck.reports.step import step_bars
from bottleneck.results.format import count, gain, gain_interval, known, long_duration, names, plural
from bottleneck.results.records import Result
from bottleneck.results.tuning import NO_TIME, Trial, TuningResult

_MEASURED = ("kept", "dropped", "undecided")
_CHANGE = "Change these lines"


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


def _tried(trials: Sequence[Trial]) -> str:
    return f"{plural(len({t.setting for t in trials if t.outcome in (*_MEASURED, 'failed')}), 'setting')} tried"


def warnings(result: TuningResult) -> Iterator[Section]:
    """Why not to trust a number."""
    yield Section("Warnings", (Items(_messages(result), "Warning", warn=True),), folded=False)


def first_warnings(result: TuningResult) -> Iterator[Section]:
    """The first of them."""
    yield Section("Warnings", (Items(_messages(result)[:MOST_WARNINGS], "Warning", warn=True),), folded=False)


def _messages(result: TuningResult) -> tuple[str, ...]:
    return tuple(warning.message for warning in result.warnings)


def changed_lines(result: TuningResult) -> Iterator[Section]:
    """What to paste."""
    yield Section("", (_lines(result, _CHANGE),), folded=False)


def changed_lines_on_a_page(result: TuningResult) -> Iterator[Section]:
    """The same below a title of its own."""
    yield Section(_CHANGE, (_lines(result, ""),), folded=False)


def _lines(result: TuningResult, title: str) -> Steps:
    lines = "\n".join(result.lines)
    return Steps((Step(title, "", lines),) if lines else (), label="")


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
    rows = tuple(_other(result, trial) for trial in latest if trial.outcome in ("dropped", "undecided"))
    said = [_said(trial, "failed") for trial in latest if trial.outcome == "failed"]
    said += [
        f"{trial.setting}: {trial.reason}."
        for trial in latest
        if trial.outcome in ("dropped", "undecided") and trial.reason
    ]
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
    named = "--budget" in after.verdict.sentence
    return (
        "Such a budget is that of `bottleneck diagnose`; a tuning spends a tenth of its own on this." if named else ""
    )


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
    spent = f"Tuned in {long_duration(result.seconds)}, {_tried(result.trials)}."
    more = f"{spent} Intervals, reasons and the job before: --verbose."
    whence = f"{spent} {result.tool.name} {result.tool.version}, {result.created}"
    lines = (
        Paragraph(more, "small", on=("text",)),
        Paragraph(spent, "small", on=("verbose",)),
        Paragraph(whence, "small", on=("markdown", "html")),
    )
    yield Section("", lines, folded=False)
