"""A tuning: the ladder of what was kept, the changed lines, what was tried besides, and what holds the job now."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from bottleneck.reports.content.job import job_facts, job_name
from bottleneck.reports.content.verdict import headline
from bottleneck.reports.document import ALL, FULL, Bar, Column, Items, Paragraph, Section, Step, Steps, Table
from bottleneck.results.format import (
    count,
    duration,
    gain_interval,
    known,
    long_duration,
    names,
    percent,
    plural,
    rate_with_half_width,
    size,
)
from bottleneck.results.tuning import Losses, Rung, Trial, TuningResult

_AS_IT_IS = "as it is"
_ALTERS = {"numbers": "what is learned", "order": "order of samples", "memory": "memory", "nothing": ""}
_LEAST_SETUP_S = 1.0
"""A first step that takes less longer than another one is not worth a sentence."""


def tuning(result: TuningResult) -> Iterator[Section]:
    """All of it, in every format."""
    named = result.after or result.before
    name = (Paragraph(job_name(named), "heading", on=("markdown", "html")),) if named is not None else ()
    facts = (Paragraph(", ".join(job_facts(result.before)), "small"),) if result.before is not None else ()
    yield Section("", (*name, Paragraph(result.sentence, "answer"), *facts), folded=False)
    yield Section("", (Items(tuple(w.message for w in result.warnings), "Warning", warn=True),), folded=False)
    yield Section("What was kept", (_ladder(result.ladder), _note(result.ladder), _facts(result.ladder)), folded=False)
    changed = (Step("Change these lines", "", "\n".join(result.lines)),) if result.lines else ()
    yield Section("The changed lines", (Steps(changed),), folded=False)
    yield Section("Tried and not kept", (_others(result.trials), *_without_a_gain(result.trials)), folded=False)
    if result.after is not None:
        yield Section("What holds the job now", (Paragraph(" ".join(headline(result.after))),), folded=False)
    took = f"Tuned in {long_duration(result.seconds)}, {plural(_tried(result.trials), 'setting')} tried."
    yield Section("", (Paragraph(took, "small"),), folded=False)


def _tried(trials: Sequence[Trial]) -> int:
    return sum(trial.outcome not in ("not_applicable", "not_tried") for trial in trials)


def _ladder(ladder: Sequence[Rung]) -> Table:
    columns = (
        Column("change", "name"),
        Column("samples/s", "number"),
        Column("", "bar"),
        Column("this step", "interval"),
        Column("all together", "interval"),
        Column("promised", "interval", on=FULL),
        Column("may alter"),
        Column("device memory", "number"),
    )
    most = max((rung.rate.samples_per_s for rung in ladder), default=1.0)
    return Table(columns, tuple(_row(rung, most) for rung in ladder))


def _row(rung: Rung, most: float) -> tuple[str | Bar, ...]:
    altered = [_ALTERS[alters] for alters in dict.fromkeys(rung.alters) if _ALTERS[alters]]
    first = not rung.settings
    return (
        _AS_IT_IS if first else " + ".join(rung.settings),
        rate_with_half_width(rung.rate),
        Bar(rung.rate.samples_per_s / most if most else None),
        "" if first else gain_interval(rung.gain),
        "" if first else gain_interval(rung.total),
        "" if rung.predicted is None else gain_interval(rung.predicted),
        ", ".join(altered),
        "" if rung.peak_device_bytes is None else size(rung.peak_device_bytes),
    )


def _note(ladder: Sequence[Rung]) -> Paragraph:
    if not ladder:
        return Paragraph("")
    rounds = len({block.round for block in ladder[0].rate.blocks})
    return Paragraph(f"Measured in turns, {plural(rounds, 'round')}; in brackets, 95 % intervals.", "note")


def _facts(ladder: Sequence[Rung]) -> Items:
    """What a step costs beside its gain: a time to begin with, and other losses."""
    return Items(
        tuple(
            fact
            for before, rung in itertools.pairwise(ladder)
            for fact in (_setup(before, rung), _losses(rung))
            if fact
        )
    )


def _setup(before: Rung, rung: Rung) -> str:
    if rung.setup_s is None or rung.setup_s - (before.setup_s or 0.0) < _LEAST_SETUP_S:
        return ""
    took_s = rung.setup_s - (before.setup_s or 0.0)
    saved_s = _s_per_sample(before) - _s_per_sample(rung)
    batch = rung.rate.seconds_per_batch * rung.rate.samples_per_s
    name, lasts = " + ".join(rung.settings), duration(took_s)
    if saved_s <= 0 or batch <= 0:
        return f"{name}: the first step takes {lasts} longer."
    steps = math.ceil(took_s / (saved_s * batch))
    return f"{name}: the first step takes {lasts} longer, which is earned back after {plural(steps, 'step')}."


def _s_per_sample(rung: Rung) -> float:
    return 1 / rung.rate.samples_per_s if rung.rate.samples_per_s > 0 else 0.0


def _losses(rung: Rung) -> str:
    if rung.losses is None or not rung.losses.base:
        return ""
    name, differ = " + ".join(rung.settings), _difference(rung.losses)
    over = f"over {plural(len(rung.losses.base), 'step')} on the same batches from the same weights"
    if differ == 0:
        return f"{name}: the losses are the same, bit for bit, {over}."
    last = f"the last is {count(rung.losses.changed[-1])}, before {count(rung.losses.base[-1])}"
    return f"{name}: the losses differ by {percent(differ)} at most {over}; {last}."


def _difference(losses: Losses) -> float:
    """The largest difference between the two losses of a step, as a part of the one before the change."""
    pairs = zip(losses.base, losses.changed, strict=False)
    return max((abs(b - a) / max(abs(a), 1e-12) for a, b in pairs), default=0.0)


def _others(trials: Sequence[Trial]) -> Table:
    columns = (
        Column("change", "name"),
        Column("on top of", on=FULL),
        Column("gain", "interval"),
        Column("promised", "interval", on=FULL),
        Column("outcome", "finding"),
    )
    return Table(
        columns, tuple(_other(trial) for trial in _latest(trials) if trial.outcome in ("dropped", "undecided"))
    )


def _without_a_gain(trials: Sequence[Trial]) -> Iterator[Items]:
    """What was not measured, and why; what does not apply has no place in a terminal."""
    for outcome, verb, on in (("failed", "failed", ALL), ("not_applicable", "does not apply", FULL)):
        found = [trial for trial in _latest(trials) if trial.outcome == outcome]
        yield Items(tuple(_said(trial, verb) for trial in found), on=on)
    untried = names([trial.setting for trial in trials if trial.outcome == "not_tried"])
    yield Items((f"There was no time left for {untried}: give it a longer --budget.",) if untried else ())


def _said(trial: Trial, verb: str) -> str:
    return f"{trial.setting} {verb}: {(trial.reason or '').rstrip('.')}."


def _latest(trials: Sequence[Trial]) -> list[Trial]:
    """The last trial of each setting: what it was on top of the most."""
    return list({trial.setting: trial for trial in trials}.values())


def _other(trial: Trial) -> tuple[str, ...]:
    gained = "" if trial.gain is None or not known(trial.gain.estimate) else gain_interval(trial.gain)
    predicted = "" if trial.predicted is None else gain_interval(trial.predicted)
    return trial.setting, " + ".join(trial.on_top_of), gained, predicted, trial.outcome
