"""What the rules of advice look at: the findings of a run beside the pipeline's settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bottleneck.analysis import settings
from bottleneck.analysis.estimates.attribution import MARGIN
from bottleneck.analysis.estimates.epochs import Epoch, find_epoch
from bottleneck.analysis.estimates.series import Readings
from bottleneck.analysis.estimates.statistics import align
from bottleneck.analysis.sentence import budget_for
from bottleneck.analysis.stopping import loss
from bottleneck.results.evidence import Evidence
from bottleneck.results.names import AFTER_COLLATE, COMPUTE, RAW
from bottleneck.results.records import Advice, GainBasis, Interval, Measurement, Stage, Verdict


@dataclass(frozen=True)
class Item:
    """One piece of advice and the factor of throughput that it may gain."""

    gain: float
    """1 where no gain is claimed."""
    advice: Advice
    basis: GainBasis = "estimated"
    """'measured' where the gain is that of its stage if free, as measured."""
    interval: Interval | None = None
    """The gain with its interval, where an estimate has an error of its own."""
    fallback: bool = False
    """Given only where nothing more specific is advised for its stage."""


@dataclass(frozen=True)
class Case:
    """A run as the rules see it. Settings that are not known are missing, and no rule may need them."""

    stages: Sequence[Stage]
    verdict: Verdict
    pipeline: Mapping[str, Any]
    environment: Mapping[str, Any]
    evidence: Evidence
    step_s: float
    """Coupled raw time per batch: one step of the job as it is."""
    device_s: float
    """Coupled device time per batch: one step with free input."""
    loader_s: float
    """Drained raw time per batch: what the loader alone takes; 0 where it was not measured."""
    budget: str | None
    """The `--budget` that would decide an undecided state."""
    epoch: Epoch | None = None
    """A whole epoch, where its length is known and what its beginning takes."""
    fed_s: float | None = None
    """Coupled time per batch where the workers have their batches ready: no number of workers makes it shorter."""

    @property
    def headroom(self) -> float:
        """Throughput with free input over that of the job."""
        return self.verdict.headroom.estimate if self.verdict.headroom else self.step_s / self.device_s

    @property
    def lost(self) -> Interval | None:
        """Part of the device's throughput that the input pipeline costs."""
        return loss(self.verdict.efficiency) if self.verdict.efficiency else None

    @property
    def cores(self) -> int | None:
        """Cores that the job may use."""
        cores = settings.number(self.environment, "cpu_cores_available")
        return None if cores is None else int(cores)

    @property
    def device(self) -> str:
        """The device that computes, such as `cuda:0`."""
        return str(self.environment.get("device", ""))

    @property
    def on_cpu(self) -> bool:
        """Whether the train step runs on the same cores as the workers."""
        return self.device.startswith("cpu")

    @property
    def on_accelerator(self) -> bool:
        """Whether a device is known to compute that the main process need not wait for."""
        return bool(self.device) and not self.on_cpu

    def number(self, key: str) -> float | None:
        """Return a setting of the pipeline; None when it is not a finite number."""
        return settings.number(self.pipeline, key)

    def stage(self, name: str) -> Stage | None:
        """Return a stage by name."""
        return next((stage for stage in self.stages if stage.name == name), None)

    def gain_of(self, stage: Stage) -> float:
        """Return what the job would gain if the stage were free: measured, else from its exposed time."""
        if stage.gain_if_free is not None:
            return stage.gain_if_free.estimate
        exposed_s = stage.exposed_s_per_batch.estimate if stage.exposed_s_per_batch else 0.0
        return self.at_most_headroom(self.step_s / max(self.step_s - exposed_s, self.device_s))

    def basis_of(self, stage: Stage) -> GainBasis:
        """Return what `gain_of` a stage rests on."""
        return "estimated" if stage.gain_if_free is None else "measured"

    def at_most_headroom(self, factor: float) -> float:
        """Return a gain, but never more than free input would bring."""
        return min(factor, max(self.headroom, 1.0))

    def costs_nothing(self, stage: Stage) -> bool:
        """Tell whether a stage costs the job nothing that could be told from noise, so that no advice is due.

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
        return cost.low <= 0 or cost.high < (MARGIN - 1) * self.step_s


@dataclass(frozen=True)
class Rule:
    """A function that looks at a case and yields what it would advise."""

    ids: tuple[str, ...]
    """Every id that it may yield; `docs/advice.md` lists them."""
    look: Callable[[Case], Iterator[Item]]

    def __call__(self, case: Case) -> Iterator[Item]:
        """Yield the advice that the case deserves."""
        return self.look(case)


def rule(*ids: str) -> Callable[[Callable[[Case], Iterator[Item]]], Rule]:
    """Make a function a rule that yields advice under these ids."""
    return lambda look: Rule(ids, look)


def open_case(measurement: Measurement, readings: Readings, stages: Sequence[Stage], verdict: Verdict) -> Case | None:
    """Gather what the rules need; None before both ends of the ladder were measured."""
    raw, device, drained = readings.raw, readings.device, readings.drained.get(RAW)
    if raw is None or device is None:
        return None
    fed = readings.coupled.get(AFTER_COLLATE)
    rounds = len(align((device, raw))[0])
    further = verdict.further_rounds
    return Case(
        stages=stages,
        verdict=verdict,
        pipeline=measurement.pipeline,
        environment=measurement.environment,
        evidence=measurement.evidence,
        step_s=raw.seconds_per_sample * raw.samples_per_batch,
        device_s=device.seconds_per_sample * raw.samples_per_batch,
        loader_s=drained.seconds_per_sample * raw.samples_per_batch if drained else 0.0,
        fed_s=fed.seconds_per_sample * raw.samples_per_batch if fed is not None else None,
        budget=None if further is None else budget_for(further, rounds, measurement.cost.seconds),
        epoch=find_epoch(readings, measurement.evidence, measurement.pipeline),
    )
