"""What every format shows of a result, looked up once: the rungs, the stages, the blocks. No decisions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bottleneck.analysis.advice.stage_idle_time import share_of, waiting_share
from bottleneck.reports import numbers, sanitize
from bottleneck.reports.content import price
from bottleneck.results.evidence import Evidence, TransformSeen
from bottleneck.results.records import Experiment, Rate, Result, Stage

MAX_VALUE = 300
"""Characters of a value of the environment or the pipeline that are shown."""
WORTH_TELLING = 0.2
"""The share of waiting from which on it is shown."""


@dataclass(frozen=True)
class Rung:
    """One experiment of the ladder that applies to the job."""

    experiment: Experiment
    stage: Stage | None
    """The stage that it adds to the rung before."""
    fraction: float | None
    """Its coupled throughput as a fraction of the fastest rung's."""
    drop: float | None
    """By which fraction it is slower than the rung before; None for the innermost."""


@dataclass(frozen=True)
class TransformRow:
    """A single transform inside a stage; what the evidence does not tell is None."""

    stage: str
    path: str
    name: str
    calls_per_sample: float | None
    wall_s_per_call: float | None
    waiting: float | None
    """The part of that time that is waiting."""
    share: float | None
    """Its part of the stage's time."""
    output: str


@dataclass(frozen=True)
class BlockSummary:
    """The raw blocks of one experiment, counted."""

    name: str
    mode: str
    """'coupled', 'drained' or 'without'."""
    rounds: int
    blocks: int
    batches: int
    samples: int
    seconds: float
    slowest_samples_per_s: float | None
    fastest_samples_per_s: float | None


def sentences(result: Result) -> list[str]:
    """The lines of the verdict, at least one: the answer, then what it is worth, also in money where it has a price."""
    told = [line for line in sanitize.lines(result.verdict.sentence) if line.strip()] or ["There is no verdict."]
    return [*told, *filter(None, [price.lost_money(result)])]


def ladder(result: Result) -> tuple[Rung, ...]:
    """The experiments that apply, from the device outwards."""
    available = [experiment for experiment in result.experiments if experiment.available]
    speeds = {e.name: e.coupled.samples_per_s for e in available if e.coupled}
    fastest = max((speed for speed in speeds.values() if speed), default=None)
    by_outer = {stage.outer: stage for stage in result.stages}
    rungs = []
    for experiment in available:
        stage, speed = by_outer.get(experiment.name), speeds.get(experiment.name)
        inner = speeds.get(stage.inner) if stage and stage.inner else None
        rungs.append(
            Rung(
                experiment=experiment,
                stage=stage,
                fraction=speed / fastest if speed is not None and fastest else None,
                drop=1 - speed / inner if speed is not None and inner else None,
            )
        )
    return tuple(rungs)


def unavailable(result: Result) -> tuple[tuple[tuple[str, ...], str], ...]:
    """Names and reason of the experiments that do not apply; those with one reason together."""
    names: dict[str, list[str]] = {}
    for experiment in result.experiments:
        if not experiment.available:
            names.setdefault(experiment.reason or "no reason is known", []).append(experiment.name)
    return tuple((tuple(found), reason) for reason, found in names.items())


def stages_by_interest(result: Result) -> tuple[Stage, ...]:
    """The stages that the verdict names, then the others, from the device outwards."""
    named = [result.verdict.bottleneck, *result.verdict.contributors]
    order = {stage.name: index for index, stage in enumerate(result.stages)}
    return tuple(
        sorted(
            result.stages,
            key=lambda s: (named.index(s.name) if s.name in named else len(named), order[s.name]),
        )
    )


def finding(stage: Stage | None) -> str:
    """The finding of a stage in words; nothing for the innermost, which is no drop."""
    if stage is None or stage.inner is None:
        return ""
    return stage.finding.replace("_", " ")


def on_accelerator(result: Result) -> bool:
    """Whether a device computes that the main process need not wait for."""
    device = str(result.environment.get("device") or "cpu")
    return not device.startswith("cpu")


def waits(result: Result) -> str:
    """How long the main process waits for a batch, as one sentence; empty where it was not measured."""
    wait_s, first_batch_s = result.evidence.wait_s, result.evidence.first_batch_s
    measured = {"p50": wait_s.p50, "p95": wait_s.p95, "p99": wait_s.p99, "max": wait_s.max}
    known = {name: seconds for name, seconds in measured.items() if seconds is not None}
    parts = []
    if known:
        values = ", ".join(f"{name} {numbers.duration(value)}" for name, value in known.items())
        whose = " of the main process" if on_accelerator(result) else ""
        rest = ", while the device may be busy" if whose else ""
        parts.append(f"Wait{whose} for a batch{rest}: {values}.")
    if first_batch_s is not None:
        parts.append(f"First batch of an epoch: {numbers.duration(first_batch_s)}.")
    return " ".join(parts)


def waiting(result: Result, stage: Stage) -> float | None:
    """The part of a stage's time in the workers that is waiting; None where it is not worth a word."""
    share = waiting_share(stage, result.evidence)
    return share if share is not None and share >= WORTH_TELLING else None


def waiting_stages(result: Result) -> str:
    """Which stages wait, and for how much of their time, as one sentence; empty where none does."""
    parts = [
        f"{sanitize.one_line(stage.name)} is waiting {numbers.percent(share)}"
        for stage in stages_by_interest(result)
        if (share := waiting(result, stage)) is not None
    ]
    return f"Of its time in the workers, {', '.join(parts)} (disk, network, locks)." if parts else ""


def transforms(result: Result) -> dict[str, tuple[TransformRow, ...]]:
    """The single transforms of each stage that has any, in the order in which they are kept."""
    rows: dict[str, list[TransformRow]] = {}
    for found in result.evidence.transforms:
        row = _transform_row(found, result.evidence)
        rows.setdefault(row.stage, []).append(row)
    return {stage: tuple(found) for stage, found in rows.items()}


def transforms_note(result: Result) -> str:
    """Why the rows do not add up to their stage; empty where they do."""
    return sanitize.one_line(result.evidence.transforms_note or "")


def _transform_row(found: TransformSeen, evidence: Evidence) -> TransformRow:
    wall_s, cpu_s = found.wall_s_per_call, found.cpu_s_per_call
    share = share_of(wall_s, cpu_s, evidence) if wall_s is not None and cpu_s is not None else None
    return TransformRow(
        stage=found.stage or "",
        path=found.path or "",
        name=found.name or "",
        calls_per_sample=found.calls_per_sample,
        wall_s_per_call=wall_s,
        waiting=share if share is not None and share >= WORTH_TELLING else None,
        share=found.share,
        output=found.output or "",
    )


def cost(result: Result) -> str:
    """What the diagnosis took, as one sentence."""
    spent = result.cost
    return (
        f"Measured in {numbers.long_duration(spent.seconds)}: {numbers.count(spent.batches)} batches, "
        f"{numbers.count(spent.samples)} samples, {numbers.size(spent.cache_bytes)} of caches."
    )


def described(key: str, value: Any) -> str:
    """A value of the environment or the pipeline as text, secrets hidden; not yet cleaned or escaped."""
    value = _presentable(key, value)
    number = numbers.by_unit(key, value)
    if number is not None:
        return number
    if isinstance(value, (Mapping, list)):
        value = json.dumps(value, ensure_ascii=False, default=str)
    text = str(value)
    return text if len(text) <= MAX_VALUE else text[:MAX_VALUE] + "…"


def block_summaries(result: Result) -> tuple[BlockSummary, ...]:
    """The raw blocks of every experiment that has any."""
    measured: list[tuple[str, str, Rate | None]] = []
    for experiment in result.experiments:
        measured.append((experiment.name, "coupled", experiment.coupled))
        measured.append((experiment.name, "drained", experiment.drained))
    measured.extend((without.stage, "without", without.coupled) for without in result.without)
    return tuple(_summary(name, mode, rate) for name, mode, rate in measured if rate and rate.blocks)


def _presentable(key: str, value: Any) -> Any:
    if sanitize.is_secret(key):
        return "[hidden]"
    if isinstance(value, Mapping):
        return {sanitize.one_line(str(name)): _presentable(str(name), item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_presentable("", item) for item in value]
    # Before it becomes part of some JSON, whose escapes would keep what is to be removed.
    return sanitize.one_line(value) if isinstance(value, str) else value


def _summary(name: str, mode: str, rate: Rate) -> BlockSummary:
    speeds = [block.samples / block.seconds for block in rate.blocks if block.seconds > 0]
    return BlockSummary(
        name=name,
        mode=mode,
        rounds=len({block.round for block in rate.blocks}),
        blocks=len(rate.blocks),
        batches=sum(block.batches for block in rate.blocks),
        samples=sum(block.samples for block in rate.blocks),
        seconds=sum(block.seconds for block in rate.blocks),
        slowest_samples_per_s=min(speeds, default=None),
        fastest_samples_per_s=max(speeds, default=None),
    )
