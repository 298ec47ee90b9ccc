"""What the rules of advice look at: the findings of a run beside the pipeline's settings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bottleneck.analysis.precision import loss
from bottleneck.analysis.readings import RAW, Readings
from bottleneck.analysis.sentence import budget_for
from bottleneck.analysis.statistics import align
from bottleneck.results.records import Advice, Interval, Measurement, Stage, Verdict


@dataclass(frozen=True)
class Item:
    """One piece of advice and the factor of throughput that it may gain."""

    gain: float
    advice: Advice


@dataclass(frozen=True)
class Case:
    """A run as the rules see it. Settings that are not known are missing, and no rule may need them."""

    stages: Sequence[Stage]
    verdict: Verdict
    pipeline: Mapping[str, Any]
    environment: Mapping[str, Any]
    evidence: Mapping[str, Any]
    step_s: float
    """Coupled raw time per batch: one step of the job as it is."""
    device_s: float
    """Coupled device time per batch: one step with free input."""
    loader_s: float
    """Drained raw time per batch: what the loader alone takes; 0 where it was not measured."""
    budget: str | None
    """The `--budget` that would decide an undecided state."""

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
        cores = _number(self.environment, "cpu_cores_available")
        return None if cores is None else int(cores)

    @property
    def device(self) -> str:
        """The device that computes, such as `cuda:0`."""
        return str(self.environment.get("device", ""))

    @property
    def on_cpu(self) -> bool:
        """Whether the train step runs on the same cores as the workers."""
        return self.device.startswith("cpu")

    def number(self, key: str) -> float | None:
        """Return a setting of the pipeline; None when it is not a finite number."""
        return _number(self.pipeline, key)

    def evidence_number(self, key: str) -> float | None:
        """Return a number of the evidence; None when it is not a finite number."""
        return _number(self.evidence, key)

    def stage(self, name: str) -> Stage | None:
        """Return a stage by name."""
        return next((stage for stage in self.stages if stage.name == name), None)

    def gain_of(self, stage: Stage) -> float:
        """Return what the job would gain if the stage were free: measured, else from its exposed time."""
        if stage.gain_if_free is not None:
            return stage.gain_if_free.estimate
        exposed_s = stage.exposed_s_per_batch.estimate if stage.exposed_s_per_batch else 0.0
        return self.at_most_headroom(self.step_s / max(self.step_s - exposed_s, self.device_s))

    def at_most_headroom(self, factor: float) -> float:
        """Return a gain, but never more than free input would bring."""
        return min(factor, max(self.headroom, 1.0))


def open_case(measurement: Measurement, readings: Readings, stages: Sequence[Stage], verdict: Verdict) -> Case | None:
    """Gather what the rules need; None before both ends of the ladder were measured."""
    raw, device, drained = readings.raw, readings.device, readings.drained.get(RAW)
    if raw is None or device is None:
        return None
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
        budget=None if further is None else budget_for(further, rounds, measurement.cost.seconds),
    )


def _number(mapping: Mapping[str, Any], key: str) -> float | None:
    value = mapping.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return value
