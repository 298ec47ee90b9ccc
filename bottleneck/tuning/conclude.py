"""What a tuning has found, as a record: the gain of each step and of all, in one sentence and in changed lines."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bottleneck.analysis.estimates.statistics import jackknife, ratio, series
from bottleneck.analysis.settings import THIS_TOOL, rate_unit
from bottleneck.results.format import count, gain_interval, names, plural
from bottleneck.results.records import SCHEMA_VERSION, Interval, Rate, Warning
from bottleneck.results.tuning import Rung, Trial, TuningResult
from bottleneck.tuning.change import Setting, Settings, labels
from bottleneck.tuning.rungs import Step
from bottleneck.tuning.session import Tuned


def conclude(found: Tuned, best: Settings, environment: Mapping[str, Any], pipeline: Mapping[str, Any]) -> TuningResult:
    """The record of a tuning, complete or not."""
    ladder = tuple(_rungs(found))
    total = ladder[-1].total if len(ladder) > 1 else None
    warnings = [*found.warnings, *_doubts(ladder)]
    return TuningResult(
        schema_version=SCHEMA_VERSION,
        kind="tuning",
        tool=THIS_TOOL,
        created=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        environment=environment,
        pipeline=pipeline,
        sentence=_sentence(ladder, found.trials, best, pipeline),
        gain=total,
        ladder=ladder,
        trials=tuple(found.trials),
        lines=tuple(filter(None, (setting.line(pipeline.get("optimizer")) for setting in best))),
        before=found.before,
        after=found.after,
        warnings=tuple(Warning(id_, message) for id_, message in warnings),
        seconds=found.seconds,
    )


def _rungs(found: Tuned) -> Iterator[Rung]:
    measured = [series(step.blocks) for step in found.ladder]
    predicted = {trial.setting: trial.predicted for trial in found.trials if trial.predicted is not None}
    for at, step in enumerate(found.ladder):
        yield Rung(
            settings=labels(step.added),
            alters=tuple(setting.change.alters for setting in step.added),
            rate=_rate(step),
            gain=ratio(measured[at - 1], measured[at]) if at else None,
            total=ratio(measured[0], measured[at]) if at else None,
            predicted=_promised(step.added, predicted),
            losses=step.losses,
            peak_device_bytes=step.peak_device_bytes,
            setup_s=step.setup_s,
        )


def _promised(added: Sequence[Setting], predicted: Mapping[str, Interval]) -> Interval | None:
    return next((predicted[setting.label] for setting in added if setting.label in predicted), None)


def _rate(step: Step) -> Rate:
    measured = series(step.blocks)
    spread = jackknife(lambda pace_s: 1 / pace_s, (measured,))
    rate = measured.samples_per_s
    around = spread.interval() if spread is not None else Interval(rate, rate, rate)
    return Rate(rate, around.low, around.high, measured.seconds_per_batch, step.blocks)


def _doubts(ladder: Sequence[Rung]) -> Iterator[tuple[str, str]]:
    for rung in ladder[1:]:
        if rung.gain is not None and rung.gain.low <= 1:
            yield (
                "gain-not-confirmed",
                f"{' + '.join(rung.settings)} was kept, and in the last rounds it gained {gain_interval(rung.gain)}: "
                "tune again with a longer --budget before you rely on it.",
            )


def _sentence(ladder: Sequence[Rung], trials: Sequence[Trial], best: Settings, pipeline: Mapping[str, Any]) -> str:
    if not ladder:
        kept = f"kept so far: {names(labels(best))}" if best else "nothing was kept so far"
        return f"The tuning ended early; {kept}."
    unit = rate_unit(pipeline, ladder[0].rate.blocks)
    now = f"{count(ladder[0].rate.samples_per_s)} {unit}"
    if len(ladder) > 1:
        kept = names([setting for rung in ladder[1:] for setting in rung.settings])
        then = count(ladder[-1].rate.samples_per_s)
        return f"{gain_interval(ladder[-1].total)} the throughput with {kept}: {then} {unit}, before {now}."
    tried = len({trial.setting for trial in trials if trial.outcome in ("dropped", "undecided", "failed")})
    return f"No change makes this job surely over 2 % faster: {plural(tried, 'setting')} tried. It has {now}."
