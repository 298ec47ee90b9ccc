"""The case: inputs of the rules of advice, and their suggestions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bottleneck.analysis import settings
from bottleneck.analysis.advice.remedies import is_served_in_turn
from bottleneck.analysis.advice.saturation import Saturation, find_saturation
from bottleneck.analysis.advice.wall_clock import find_wall_clock
from bottleneck.analysis.epochs import Epoch, find_epoch
from bottleneck.analysis.readings import Readings
from bottleneck.analysis.sentence import budget_for
from bottleneck.analysis.settings import MARGIN, collecting_share
from bottleneck.analysis.verdict import MIN_ROUNDS, loss
from bottleneck.results.evidence import Evidence, WallClockPart
from bottleneck.results.names import (
    AFTER_COLLATE,
    COMPUTE,
    RAW,
    crosses_process,
    is_cpu,
    makes_samples,
    moves_batches,
)
from bottleneck.results.records import Interval, Rank, Result, Stage, Verdict

MUCH_COLLECTING = 0.08
"""Share of the work, or of the loop, above which collections of all objects are worth avoiding."""
WORTH = 1.05
"""The gain below which a change is not advised."""
WORTH_NAMING = 0.3
"""Share of a stage above which a line, or a single transform, is worth a change."""


@dataclass(frozen=True, kw_only=True)
class Suggestion:
    """Advice before its gain is known with its interval: the output of a rule."""

    id: str = ""
    """One of the ids of its rule; of a rule that has a single one, that is filled in."""
    stage: str | None = None
    title: str
    why: str
    how: str
    evidence: Mapping[str, Any]
    gain: float | Interval = 1.0
    """Factor of throughput that it may gain; 1 if no gain is claimed."""
    frees_stage: bool = False
    """True if the gain is that of its stage if free, as measured; otherwise `gain_of` the stage."""
    measured: bool = False
    """The gain is that of a trial."""
    fallback: bool = False
    """True if it is given only when nothing more specific is advised for its stage."""
    last_resort: bool = False
    """True if it is given only when nothing else can be done about an input-bound job."""
    cause: bool = False
    """It names why its stage is slow, with a remedy for that."""


@dataclass(frozen=True)
class Case:
    """A run as the rules see it. Settings that are unknown are missing, and no rule may need them."""

    stages: Sequence[Stage]
    verdict: Verdict
    pipeline: Mapping[str, Any]
    environment: Mapping[str, Any]
    evidence: Evidence
    step_s: float
    """Coupled raw time per batch: one step of the unmodified job."""
    device_s: float
    """Coupled device time per batch: one step with free input."""
    loader_s: float
    """Seconds per batch of the loader alone: measured, or of a job that it limits; 0 if unknown."""
    budget: str | None
    """The `--budget` that would decide an undecided state."""
    epoch: Epoch | None = None
    """A whole epoch, if its length and its start are known."""
    fed_s: float | None = None
    """Coupled time per batch with the workers' batches ready: more workers do not make it shorter."""
    ranks: Sequence[Rank] = ()
    """Ranks of a job of many processes."""
    wall_clock: Sequence[WallClockPart] = ()
    """Parts of a script's wall clock."""
    collecting_share: float = 0.0
    """Part of the main process's time spent on collecting garbage among all objects, in the unmodified job."""

    # --- the machine and the settings --------------------------------------------------------------------------

    @property
    def cores(self) -> int | None:
        """Cores that the job may use."""
        cores = settings.number(self.environment, "cpu_cores_available")
        return None if cores is None else int(cores)

    @property
    def free_memory_bytes(self) -> float | None:
        """The memory that was free when the run began."""
        return settings.positive(self.environment, "memory_available_bytes")

    @property
    def device(self) -> str:
        """The device that computes, such as `cuda:0`."""
        return str(self.environment.get("device", ""))

    @property
    def on_cpu(self) -> bool:
        """True if the train step runs on the same cores as the workers."""
        return is_cpu(self.device)

    @property
    def on_cuda(self) -> bool:
        """True if an NVIDIA or AMD device trains."""
        return self.device.startswith("cuda")

    @property
    def on_accelerator(self) -> bool:
        """True if an asynchronous device is known to compute, for which the main process need not wait."""
        return bool(self.device) and not self.on_cpu

    def number(self, key: str) -> float | None:
        """Return a setting of the pipeline; None unless it is a finite number."""
        return settings.number(self.pipeline, key)

    def positive(self, key: str) -> float | None:
        """Return a setting of the pipeline; None unless it is a number over 0."""
        return settings.positive(self.pipeline, key)

    @property
    def workers(self) -> float:
        """Worker processes; 0 if unknown."""
        return self.positive("num_workers") or 0

    @property
    def saturation(self) -> Saturation | None:
        """Resources that the unmodified job saturates; None if not measured."""
        return find_saturation(self.evidence, self.verdict.state)

    @property
    def in_script(self) -> bool:
        """True if the job is a script, which makes its own loader: our options do not change that."""
        return self.pipeline.get("source") == "script"

    @property
    def has_loader(self) -> bool:
        """True if a DataLoader provides the batches; any iterable that the user's code names may do so as well."""
        return self.pipeline.get("loader", "") is not None

    def setting(self, text: str) -> str:
        """Return `num_workers=8`, with the option that sets it if there is one."""
        return text if self.in_script else f"--set {text}"

    def loader_with(self, setting: str) -> str:
        """Return the DataLoader with a setting as code, and a way to try that without an edit, if there is one."""
        trial = "" if self.in_script else f"; try it with {self.setting(setting)}"
        return f"DataLoader(..., {setting}){trial}"

    @property
    def served_in_turn(self) -> bool:
        """True if workers wait for each other: a manager's process, a lock or a database serves one at a time."""
        asking = (line for line in self.evidence.lines if is_served_in_turn(line))
        return sum(line.share or 0.0 for line in asking) >= WORTH_NAMING

    # --- what limits the job -----------------------------------------------------------------------------------

    @property
    def input_bound(self) -> bool:
        """True if the input pipeline limits the job."""
        return self.verdict.state == "input_bound"

    @property
    def undecided(self) -> bool:
        """True if it is unknown whether the input pipeline limits the job."""
        return self.verdict.state == "undecided"

    @property
    def doubt(self) -> str:
        """Return a sentence on gains in an undecided job; empty in another."""
        known = "It is undecided whether the job waits for it: the gain is the most that the intervals allow."
        return f" {known}" if self.undecided else ""

    @property
    def is_slow_over_epochs(self) -> bool:
        """True if starting its epochs costs the job time worth work, which its steady steps do not show."""
        whole = self.verdict.epoch_efficiency
        return (
            self.verdict.judged_by == "epoch_efficiency"
            and whole is not None
            and loss(whole).low > settings.LOSS_WORTH_TOUCHING
        )

    @property
    def is_unresolved(self) -> bool:
        """True if the input pipeline limits the job, but none of its stages could be named."""
        return self.input_bound and self.verdict.bottleneck is None

    @property
    def headroom(self) -> float:
        """Throughput with free input over that of the job."""
        return self.verdict.headroom.estimate if self.verdict.headroom else self.step_s / self.device_s

    @property
    def lost(self) -> Interval | None:
        """Part of the device's throughput that the input pipeline costs."""
        return loss(self.verdict.efficiency) if self.verdict.efficiency else None

    def stage(self, name: str | None) -> Stage | None:
        """Return a stage by name."""
        return next((stage for stage in self.stages if stage.name == name), None)

    @property
    def held_by(self) -> list[Stage]:
        """Stages that limit an input-bound job: the bottleneck, then the contributors."""
        if not self.input_bound:
            return []
        named = map(self.stage, (self.verdict.bottleneck, *self.verdict.contributors))
        return [stage for stage in named if stage is not None and stage.name != COMPUTE]

    @property
    def suspects(self) -> list[Stage]:
        """Stages that limit the job; if none could be named, all that make samples."""
        return [stage for stage in self.stages if makes_samples(stage.name)] if self.is_unresolved else self.held_by

    @property
    def may_gain(self) -> list[Stage]:
        """Stages in which a known cause is worth knowing: suspects, or those that may cost an undecided job much."""
        if not self.undecided:
            return self.suspects
        costly = (s for s in self.stages if s.cost_s_per_batch is None or s.cost_s_per_batch.low > 0)
        return [stage for stage in costly if stage.name != COMPUTE and self._at_most(stage) >= WORTH]

    def holding(self, *names: str) -> Stage | None:
        """Return the first stage of these names that limits an input-bound job."""
        return next((stage for stage in self.held_by if stage.name in names), None)

    @property
    def transport_bound(self) -> bool:
        """True if only stages beyond the worker limit the job."""
        named = [name for name in (self.verdict.bottleneck, *self.verdict.contributors) if name is not None]
        return bool(named) and all(map(moves_batches, named))

    # --- gains -------------------------------------------------------------------------------------------------

    def gain_of(self, stage: Stage) -> float:
        """Return the job's gain if the stage were free: measured, otherwise from its exposed time."""
        if stage.gain_if_free is not None:
            return self.possible_gain(stage, stage.gain_if_free).estimate
        exposed_s = stage.exposed_s_per_batch.estimate if stage.exposed_s_per_batch else 0.0
        return self.at_most_headroom(self.step_s / max(self.step_s - exposed_s, self.device_s))

    def gain_of_part(self, stage: Stage, part: float) -> float:
        """Return the job's largest gain if a part of a stage's work were free.

        Amdahl's law within the stage: the time that the whole stage would save, as measured, goes with its work. Where
        the train step cuts off what the whole stage would save, a part of it reaches the same limit sooner.

        In an undecided job it is the most that the intervals allow.
        """
        most, cost = self.gain_of(stage), stage.cost_s_per_batch
        cost_s = cost.estimate if cost is not None else 0.0
        if self.undecided:
            most, cost_s = self._at_most(stage), cost.high if cost is not None else 0.0
        part, limit = min(max(part, 0.0), 1.0), max(most, 1.0)
        by_gain = 1 / (1 - part * (1 - 1 / limit))
        left_s = self.step_s - part * cost_s
        by_cost = self.step_s / left_s if left_s > 0 else limit
        return max(by_gain, min(limit, by_cost))

    def _at_most(self, stage: Stage) -> float:
        """Return the most that the job may gain if the stage were free."""
        if stage.gain_if_free is not None:
            return self.possible_gain(stage, stage.gain_if_free).high
        return self.verdict.headroom.high if self.verdict.headroom is not None else 1.0

    def at_most_headroom(self, factor: float) -> float:
        """Return a gain, but never more than free input would bring."""
        return min(factor, max(self.headroom, 1.0))

    def possible_gain(self, stage: Stage, gain: Interval) -> Interval:
        """Return the measured gain of a stage, limited to that of free input; storage is not part of that."""
        most = self.verdict.headroom
        if most is None or stage.is_alternative:
            return gain
        estimate = min(gain.estimate, max(most.estimate, 1.0))
        return Interval(estimate, min(gain.low, estimate), max(estimate, min(gain.high, most.high)))

    def costs_nothing(self, stage: Stage) -> bool:
        """Return True if a stage costs the job nothing beyond noise, so that no advice is due.

        Its coupled drop alone does not say so: the loader works ahead, and only the last straw shows there.
        """
        if stage.name in (COMPUTE, self.verdict.bottleneck, *self.verdict.contributors) or stage.finding == "real":
            return False
        if self.verdict.state == "device_bound":
            return True
        if stage.gain_if_free is not None and stage.gain_if_free.low > MARGIN:
            return False
        cost = stage.cost_s_per_batch
        if cost is None:
            return stage.finding == "within_noise"
        unknown = self.is_unresolved and makes_samples(stage.name)  # one of these stages costs all that the job loses
        return (cost.low <= 0 and not unknown) or cost.high < (MARGIN - 1) * self.step_s


@dataclass(frozen=True)
class Rule:
    """A function that checks a case and yields advice."""

    ids: tuple[str, ...]
    """Every id that it may yield; `docs/advice.md` lists them."""
    check: Callable[[Case], Iterator[Suggestion]]

    def __call__(self, case: Case) -> Iterator[Suggestion]:
        for found in self.check(case):
            yield found if found.id else replace(found, id=self.ids[0])


def rule(*ids: str) -> Callable[[Callable[[Case], Iterator[Suggestion]]], Rule]:
    """Make a function a rule that yields advice under these ids."""
    return lambda check: Rule(ids, check)


def open_case(measurement: Result, readings: Readings, stages: Sequence[Stage], verdict: Verdict) -> Case | None:
    """Gather the inputs of the rules; None before both ends of the ladder were measured."""
    raw, device, drained = readings.raw, readings.device, readings.drained.get(RAW)
    if raw is None or device is None:
        return None
    size = raw.samples_per_batch
    fed = readings.coupled.get(AFTER_COLLATE)
    further, rounds = verdict.further_rounds, readings.common_rounds
    if verdict.state == "input_bound" and verdict.bottleneck is None and rounds < MIN_ROUNDS:
        further = MIN_ROUNDS - rounds
    epoch = find_epoch(readings, measurement.evidence, measurement.pipeline)
    return Case(
        stages=stages,
        verdict=verdict,
        pipeline=measurement.pipeline,
        environment=measurement.environment,
        evidence=measurement.evidence,
        step_s=raw.seconds_per_batch,
        device_s=device.seconds_per_sample * size,
        loader_s=drained.seconds_per_sample * size if drained else _held_s(readings, verdict),
        fed_s=fed.seconds_per_sample * size if fed is not None else None,
        budget=None if further is None else budget_for(further, rounds, measurement.cost.seconds),
        epoch=epoch,
        ranks=measurement.ranks,
        wall_clock=find_wall_clock(measurement, raw.seconds_per_batch, epoch),
        collecting_share=collecting_share(measurement),
    )


def _held_s(readings: Readings, verdict: Verdict) -> float:
    """Return the loader's time per batch in a job that one of its stages limits; 0 if none is known to."""
    stage = verdict.bottleneck if verdict.state == "input_bound" else None
    return (readings.loader_s_per_batch or 0.0) if stage is not None and not crosses_process(stage) else 0.0
