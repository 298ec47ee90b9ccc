"""Record of a tuning: each trial, each rung, a sentence about the whole, and the changed lines of code."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bottleneck.analysis.settings import THIS_TOOL, rate_unit
from bottleneck.analysis.statistics import jackknife, ratio, series
from bottleneck.results.format import count, gain_interval, names, plural
from bottleneck.results.records import SCHEMA_VERSION, Block, Interval, Rate, Result, Warning
from bottleneck.results.tuning import Outcome, Pair, Rung, Trial, TuningResult
from bottleneck.results.warnings.disagreement import gain_left_out, gain_not_confirmed
from bottleneck.results.warnings.machine import baseline_differs
from bottleneck.tuner.change import Settings, describe, labels
from bottleneck.tuner.judging import gain

_NOT_CONFIRMED = "its gain was not confirmed when the ladder was measured"
_OTHER_BASELINE = 0.15
"""Share by which the original job's pace may differ from that of the script alone without a warning."""


@dataclass
class Tuned:
    """Results of a tuning so far; complete once `run` has ended without a failure."""

    before: Result | None = None
    after: Result | None = None
    trials: list[Trial] = field(default_factory=list)
    ladder: list[Rung] = field(default_factory=list)
    warnings: list[Warning] = field(default_factory=list)
    seconds: float = 0.0
    own_s_per_batch: float | None = None
    """Seconds per batch of the script alone, before its loop was fed; None if unknown, or not a script."""
    whole_epochs: bool = False
    """True if the blocks of the ladder are whole epochs, the start of the workers included."""

    def warn(self, warning: Warning) -> None:
        """Add a reason to doubt a number, once."""
        if warning not in self.warnings:
            self.warnings.append(warning)

    def leave_out(self, added: Sequence[Settings], given: Sequence[Block], tuned: Sequence[Block]) -> None:
        """Mark changes as undecided that were kept after the last rung clearly faster than the original job."""
        settings = [describe(each) for each in added]
        for at, trial in enumerate(self.trials):
            if trial.outcome == "kept" and trial.setting in settings:
                self.trials[at] = replace(trial, outcome="undecided", reason=_NOT_CONFIRMED)
        self.warn(gain_left_out(settings, ratio(series(given), series(tuned))))


def trial_of(
    tried: Settings,
    base: Settings,
    outcome: Outcome,
    reason: str | None,
    predicted: Interval | None,
    pairs: Sequence[Pair] = (),
    setup_s: float | None = None,
) -> Trial:
    """Return the record of an attempt with one change, or with several at once."""
    changes = [setting.change for setting in tried]
    altering = next((change for change in changes if change.alters == "numbers"), changes[0])
    return Trial(
        describe(tried),
        labels(base),
        changes[0].on,
        altering.alters,
        outcome,
        reason,
        gain(pairs),
        predicted,
        tuple(pairs),
        setup_s,
        tuple(change.name for change in changes),
    )


def rung_of(added: Settings, blocks: Sequence[Sequence[Block]], peak_bytes: int | None, setup_s: float) -> Rung:
    """Return the record of a ladder's last rung, from the blocks of all rungs up to it."""
    measured = [series(each) for each in blocks]
    rate = measured[-1].samples_per_s
    spread = jackknife(lambda pace_s: 1 / pace_s, (measured[-1],))
    around = spread.interval() if spread is not None else Interval(rate, rate, rate)
    return Rung(
        settings=labels(added),
        alters=tuple(setting.change.alters for setting in added),
        rate=Rate(rate, around.low, around.high, measured[-1].seconds_per_batch, tuple(blocks[-1])),
        gain=ratio(measured[-2], measured[-1]) if len(measured) > 1 else None,
        total=ratio(measured[0], measured[-1]) if len(measured) > 1 else None,
        predicted=None,
        peak_device_bytes=peak_bytes,
        setup_s=setup_s,
    )


def conclude(found: Tuned, best: Settings, environment: Mapping[str, Any], pipeline: Mapping[str, Any]) -> TuningResult:
    """Return the record of a tuning, complete or not."""
    ladder = tuple(found.ladder)
    total = ladder[-1].total if len(ladder) > 1 else None
    in_script = pipeline.get("source") == "script"
    return TuningResult(
        schema_version=SCHEMA_VERSION,
        kind="tuning",
        tool=THIS_TOOL,
        created=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        environment=environment,
        pipeline=pipeline,
        sentence=_sentence(ladder, found, best, pipeline),
        gain=total,
        ladder=ladder,
        trials=tuple(found.trials),
        lines=tuple(filter(None, (setting.line(pipeline.get("optimizer"), in_script=in_script) for setting in best))),
        before=found.before,
        after=found.after,
        warnings=(*found.warnings, *_doubts(ladder), *_other_baseline(found, pipeline)),
        seconds=found.seconds,
    )


def _doubts(ladder: Sequence[Rung]) -> Iterator[Warning]:
    for rung in ladder[1:]:
        if rung.gain is not None and rung.gain.low <= 1:
            yield gain_not_confirmed(rung.settings, rung.gain)


def _other_baseline(found: Tuned, pipeline: Mapping[str, Any]) -> Iterator[Warning]:
    if not found.ladder or found.own_s_per_batch is None or found.whole_epochs:
        return
    rate = found.ladder[0].rate
    times = found.own_s_per_batch / rate.seconds_per_batch
    if abs(times - 1) > _OTHER_BASELINE:
        unit = rate_unit(pipeline, rate.blocks, found.before)
        yield baseline_differs(before=rate.samples_per_s / times, now=rate.samples_per_s, unit=unit)


def _sentence(ladder: Sequence[Rung], found: Tuned, best: Settings, pipeline: Mapping[str, Any]) -> str:
    if not ladder:
        kept = f"kept so far: {names(labels(best))}" if best else "nothing was kept so far"
        return f"The tuning ended early; {kept}."
    unit = rate_unit(pipeline, ladder[0].rate.blocks, found.before)
    now = f"{count(ladder[0].rate.samples_per_s)} {unit}"
    if len(ladder) > 1:
        kept = names([setting for rung in ladder[1:] for setting in rung.settings])
        then = count(ladder[-1].rate.samples_per_s)
        return f"{gain_interval(ladder[-1].total)} the throughput with {kept}: {then} {unit}, before {now}."
    tried = len({trial.setting for trial in found.trials if trial.outcome in ("dropped", "undecided", "failed")})
    settings = f"{plural(tried, 'setting')} tried" if tried else "none applies or is worth trying"
    return f"No change makes this job clearly more than 2 % faster: {settings}. It runs at {now}."
