"""A tuning: its gains as a ladder, the changed lines, other trials, and the present bottleneck."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from bottleneck.analysis.edits.edits import FIRST, changes_for
from bottleneck.analysis.edits.patch import in_one_call
from bottleneck.reports.advice import advice, first_in_words, promise_of
from bottleneck.reports.answer import MAX_WARNINGS, STATES, headline, job_facts, job_name, rate_unit, standing
from bottleneck.reports.document import (
    FULL,
    PAGES,
    TERMINAL,
    Bar,
    Column,
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
CHANGE = "Change these lines"
_ALTERS = {"numbers": "what is learned", "order": "order of samples", "memory": "memory"}
_MIN_SETUP_S = 1.0
"""A first step that takes less longer than another one is not worth a sentence."""


# --- the answer ---------------------------------------------------------------------------------------------


def answer(result: TuningResult) -> Iterator[Section]:
    """Yield result and job: in one line and a sentence, or as the heading of a pull request."""
    name, facts = job_name(result), job_facts(result)
    state, heading = "UNFINISHED", f"⚪ {name}: the tuning ended early"
    if result.ladder:
        unit = rate_unit(result)
        before, after = (count(rung.rate.samples_per_s) for rung in (result.ladder[0], result.ladder[-1]))
        state, heading = "UNCHANGED", f"⚪ {name}: no change pays ({before} {unit})"
        if len(result.ladder) > 1 and result.gain is not None:
            state = "TUNED"
            heading = f"🟢 {name} is {gain(result.gain.estimate)} faster ({before} → {after} {unit})"
    blocks = (
        Paragraph(f"{state}  {name}", "state", on=(*TERMINAL, "html")),
        Paragraph(result.sentence, "answer", on=("html",)),
        Paragraph(facts, "note", on=(*TERMINAL, "html")),
        Paragraph(result.sentence, on=TERMINAL),
        Paragraph(heading, "heading", on=("markdown",)),
        Paragraph(facts, "small", on=("markdown",)),
        Paragraph("" if result.gain is not None else result.sentence, on=("markdown",)),  # the heading says it
    )
    yield Section("", blocks, folded=False)


def warnings(result: TuningResult) -> Iterator[Section]:
    """Yield reasons not to trust a number: the first ones, and all if there is room."""
    messages = tuple(warning.message for warning in result.warnings)
    first = Items(messages[:MAX_WARNINGS], "Warning", warn=True, on=("text", "markdown"))
    yield Section("Warnings", (first, Items(messages, "Warning", warn=True, on=("verbose", "html"))), folded=False)


def changed_lines(result: TuningResult, title: str = "") -> Iterator[Section]:
    """Yield code to paste; with the title of a section, or a separate one."""
    lines = "\n".join(in_one_call(result.lines))
    steps = (Step("" if title else CHANGE, "", lines),) if lines else ()
    yield Section(title, (Steps(steps, label=""),), folded=False)


# --- the ladder ---------------------------------------------------------------------------------------------


def ladder(result: TuningResult, *, folded: bool = True) -> Iterator[Section]:
    """Yield the whole table, without intervals if there is little room, and the costs of a change besides its gain."""
    rows, note = tuple(_ladder_rows(result)), ""
    if result.ladder:
        rounds = len({block.round for block in result.ladder[0].rate.blocks})
        note = f"Measured in turns, {plural(rounds, 'round')}."
        if any(rung.predicted for rung in result.ladder):
            note += " Promised: the gain that the diagnosis of the job expected."
    columns = (
        Column("change", "code"),
        Column(rate_unit(result), "number"),
        Column("", "bar", on=("text", *PAGES)),
        Column("this step", "number"),
        Column("all together", "number"),
        Column("promised", "number"),
        Column("may alter", on=PAGES),
        Column("device memory", "number", on=PAGES),
    )
    blocks = (
        Table(columns, tuple((*row[:3], *map(_estimate, row[3:5]), *row[5:]) for row in rows), on=("text",)),
        Paragraph(note, "note", on=("text",)),
        Table(columns, rows, on=FULL),
        Paragraph(f"{note} In brackets, 95 % intervals." if note else "", "note", on=FULL),
        Items(tuple(_ladder_facts(result.ladder))),
    )
    yield Section("The ladder in numbers", blocks, folded=folded)


def ladder_for_a_phone(result: TuningResult) -> Iterator[Section]:
    """Yield three columns, which fit on a phone."""
    columns = Column("change", "code"), Column(rate_unit(result), "number"), Column("all together", "number")
    rows = tuple((rung.label, count(rung.rate.samples_per_s), _gain(rung)) for rung in result.ladder)
    yield Section("", (Table(columns, rows), Items(tuple(_ladder_facts(result.ladder)))), folded=False)


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
    return cell.partition(" (")[0] if isinstance(cell, str) else cell


# --- what a step costs besides its gain ----------------------------------------------------------------------


def _ladder_facts(ladder: Sequence[Rung]) -> Iterator[str]:
    """Yield possible side effects of the kept changes, and start-up times."""
    altered: dict[str, list[str]] = {kind: [] for kind in _ALTERS}  # effects on learning first
    for setting, alters in (pair for rung in ladder for pair in zip(rung.settings, rung.alters, strict=False)):
        altered.setdefault(alters, []).append(setting)
    told = [f"{said}: {names(altered[kind])}" for kind, said in _ALTERS.items() if altered[kind]]
    if told:
        yield f"May alter {'; '.join(told)}."
    for before, rung in itertools.pairwise(ladder):
        yield from filter(None, [_setup(before, rung)])


def _setup(before: Rung, rung: Rung) -> str:
    if rung.setup_s is None or rung.setup_s - (before.setup_s or 0.0) < _MIN_SETUP_S:
        return ""
    took_s = rung.setup_s - (before.setup_s or 0.0)
    saved_s = _s_per_sample(before) - _s_per_sample(rung)
    batch = rung.rate.seconds_per_batch * rung.rate.samples_per_s
    lasts = duration(took_s)
    if saved_s <= 0 or batch <= 0:
        return f"{rung.label}: the first step takes {lasts} longer."
    steps = math.ceil(took_s / (saved_s * batch))
    return f"{rung.label}: the first step takes {lasts} longer, which pays off after {plural(steps, 'step')}."


def _s_per_sample(rung: Rung) -> float:
    return 1 / rung.rate.samples_per_s if rung.rate.samples_per_s > 0 else 0.0


# --- what was not kept --------------------------------------------------------------------------------------


def others_in_short(result: TuningResult) -> Iterator[Section]:
    """Yield the trials that were not kept, in a sentence each for measured and failed ones."""
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
    """Yield the trials that were not kept, each with its number or its reason."""
    columns = (
        Column("change", "code"),
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
    yield Section("Not applicable", (Items(nowhere),))


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
    """Return the last trial of each setting: the one on top of the most others."""
    return list({trial.setting: trial for trial in trials}.values())


# --- the job before and now ---------------------------------------------------------------------------------


def now(result: TuningResult) -> Iterator[Section]:
    """Yield the bottleneck of the tuned job, with bars if there is room, and the first remaining steps."""
    left, title = _left_to_do(result), "What limits the job now"
    if result.after is None or left is None:
        return
    bars = list(step_bars(result.after))
    for section in bars:
        yield replace(section, blocks=tuple(replace(block, on=("verbose",)) for block in section.blocks))
    job = "the tuned job" if len(result.ladder) > 1 else "the unmodified job"
    further = first_in_words(left)
    whose = "That is the --budget of `bottleneck diagnose`; a tuning spends 6 to 12 s of its budget on this."
    blocks = (
        Paragraph(f"{STATES[standing(result.after)]}  {job}", "state", on=TERMINAL),
        Paragraph(title, "state", on=("markdown",)),
        *map(Paragraph, (*headline(result.after), whose if "--budget" in result.after.verdict.sentence else "")),
        Paragraph(f"Next: {further}" if further else "", on=TERMINAL),
        *(replace(block, on=("html",)) for section in bars for block in section.blocks),
    )
    yield Section(title, blocks, folded=False)


def next_steps(result: TuningResult) -> Iterator[Section]:
    """Yield further advice for the tuned job."""
    left = _left_to_do(result)
    if left is not None:
        yield from (replace(section, folded=True) for section in advice(left))


def before(result: TuningResult) -> Iterator[Section]:
    """Yield the answer for the job before."""
    if result.before is not None:
        state = Paragraph(f"{STATES[standing(result.before)]}  the job before", "state", on=TERMINAL)
        yield Section("The job before", (state, *map(Paragraph, headline(result.before))))


def _left_to_do(result: TuningResult) -> Result | None:
    """Return the diagnosis of the tuned job, without advice that this tuning has tried."""
    if result.after is None:
        return None
    tried = {name for trial in result.trials if trial.outcome in _MEASURED for name in trial.changes}
    tried -= {name for trial in result.trials if trial.outcome == "not_tried" for name in trial.changes}
    left = [item for item in result.after.advice if item.id != FIRST]  # of the diagnosis, not of this budget
    left = [item for item in left if not tried.issuperset(tuple(changes_for(result.after, item)) or ("",))]
    return replace(result.after, advice=tuple(left))


def took(result: TuningResult) -> Iterator[Section]:
    """Yield the cost of the tuning, and where to find more."""
    tried = {trial.setting for trial in result.trials if trial.outcome in (*_MEASURED, "failed")}
    spent = f"Tuned in {long_duration(result.seconds)}, {plural(len(tried), 'setting')} tried."
    more = f"{spent} Intervals, reasons and the job before: --verbose."
    origin = f"{spent} {result.tool.name} {result.tool.version}, {result.created}"
    lines = (
        Paragraph(more, "small", on=("text",)),
        Paragraph(spent, "small", on=("verbose",)),
        Paragraph(origin, "small", on=("markdown", "html")),
    )
    yield Section("", lines, folded=False)
