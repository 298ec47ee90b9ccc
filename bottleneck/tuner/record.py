"""What a tuning has found, as a record: each trial, each rung, and all of it in one sentence and in changed lines."""

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
from bottleneck.tuner.change import Settings, describe, labels
from bottleneck.tuner.judging import gain

_NOT_CONFIRMED = "its gain was not confirmed when the ladder was measured"
_OTHER_BASELINE = 0.15
"""Share by which the job as it is may differ from the script by itself without a warning."""


@dataclass
class Tuned:
    """What a tuning has found so far; complete when `run` has ended without a failure."""

    before: Result | None = None
    after: Result | None = None
    trials: list[Trial] = field(default_factory=list)
    ladder: list[Rung] = field(default_factory=list)
    warnings: list[tuple[str, str]] = field(default_factory=list)
    seconds: float = 0.0
    own_s_per_batch: float | None = None
    """What a batch took in the script by itself, before its loop was fed; None: not known, or it is no script."""
    whole_epochs: bool = False
    """The ladder is of whole epochs, with the start of the workers."""

    def warn(self, id_: str, message: str) -> None:
        """Keep a reason not to trust a number, once."""
        if (id_, message) not in self.warnings:
            self.warnings.append((id_, message))

    def leave_out(self, added: Sequence[Settings], given: Sequence[Block], tuned: Sequence[Block]) -> None:
        """Take back what was kept after the last rung that is surely faster than the job as it is."""
        settings = [describe(each) for each in added]
        for at, trial in enumerate(self.trials):
            if trial.outcome == "kept" and trial.setting in settings:
                self.trials[at] = replace(trial, outcome="undecided", reason=_NOT_CONFIRMED)
        gained = gain_interval(ratio(series(given), series(tuned)))
        self.warn(
            "gain-not-confirmed",
            f"{' + '.join(settings)} seemed to pay, and is left out: measured in turns with the job as it is, all that "
            f"was kept has {gained}. Tune again with a longer --budget, on a machine that nobody else uses.",
        )


def trial_of(
    tried: Settings, base: Settings, outcome: Outcome, reason: str | None, predicted: Interval | None,
    pairs: Sequence[Pair] = (), setup_s: float | None = None,
) -> Trial:  # fmt: skip
    """The record of what became of a change, or of several that were tried together."""
    changes = [setting.change for setting in tried]
    altering = next((change for change in changes if change.alters == "numbers"), changes[0])
    return Trial(
        describe(tried), labels(base), changes[0].on, altering.alters, outcome, reason,
        gain(pairs), predicted, tuple(pairs), setup_s, tuple(change.name for change in changes),
    )  # fmt: skip


def rung_of(added: Settings, blocks: Sequence[Sequence[Block]], peak_bytes: int | None, setup_s: float) -> Rung:
    """The last rung of a ladder, from the blocks of all rungs up to it."""
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
    """The record of a tuning, complete or not."""
    ladder = tuple(found.ladder)
    total = ladder[-1].total if len(ladder) > 1 else None
    in_script = pipeline.get("source") == "script"
    warnings = [*found.warnings, *_doubts(ladder), *_other_baseline(found, pipeline)]
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
        warnings=tuple(Warning(id_, message) for id_, message in warnings),
        seconds=found.seconds,
    )


def _doubts(ladder: Sequence[Rung]) -> Iterator[tuple[str, str]]:
    for rung in ladder[1:]:
        if rung.gain is not None and rung.gain.low <= 1:
            yield (
                "gain-not-confirmed",
                f"{' + '.join(rung.settings)} was kept, and in the last rounds it gained {gain_interval(rung.gain)}: "
                "tune again with a longer --budget before you rely on it.",
            )


def _other_baseline(found: Tuned, pipeline: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if not found.ladder or found.own_s_per_batch is None or found.whole_epochs:
        return
    rate = found.ladder[0].rate
    times = found.own_s_per_batch / rate.seconds_per_batch
    if abs(times - 1) > _OTHER_BASELINE:
        unit = rate_unit(pipeline, rate.blocks, found.before)
        yield (
            "baseline-differs",
            f"By itself, before it was fed, the script had {count(rate.samples_per_s / times)} {unit}, and as it is in "
            f"this tuning {count(rate.samples_per_s)}. The gains are those of the tuning: something else has changed "
            "meanwhile, such as other load, or files that were read for the first time. Tune again on a machine that "
            "nobody else uses, and compare the script by itself with and without the changed lines.",
        )


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
    settings = f"{plural(tried, 'setting')} tried" if tried else "none applies here, or was worth a try"
    return f"No change makes this job surely over 2 % faster: {settings}. It has {now}."
