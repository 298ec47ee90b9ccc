"""Measurements with a known truth: what each experiment takes per batch, with noise and drift of a seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bottleneck.analysis.settings import THIS_TOOL
from bottleneck.results.records import (
    NO_VERDICT,
    SCHEMA_VERSION,
    Block,
    Cost,
    Experiment,
    Rate,
    Result,
    Stage,
    Without,
    blocks_of,
)
from tests.support.results_factory import evidence_of

BATCH_SIZE = 32
BATCHES = 20
LADDER = ("device", "host", "after_collate", "before_collate", "before_augment", "raw")
STAGES = ("compute", "copy", "handoff", "collate", "augment", "load")


@dataclass(frozen=True)
class Job:
    """The true seconds per batch of every experiment of a job."""

    coupled: Mapping[str, float]
    drained: Mapping[str, float] = field(default_factory=dict)
    without: Mapping[str, float] = field(default_factory=dict)
    pipeline: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    evidence: Mapping[str, Any] = field(default_factory=dict)
    workers: float | None = None
    """The workers alone, with everything real."""
    serving: float | None = None
    """The same at the price of serving."""
    alone: Mapping[str, float] = field(default_factory=dict)
    """The workers alone without a stage."""


# DESIGN section 6: held by its augmentation.
AUGMENT_BOUND = Job(
    coupled=dict(zip(LADDER, (0.0094, 0.0095, 0.0097, 0.0098, 0.0228, 0.0247), strict=True)),
    drained={"after_collate": 0.0012, "before_collate": 0.0021, "before_augment": 0.0225, "raw": 0.0246},
    without={"copy": 0.0246, "handoff": 0.0244, "collate": 0.0243, "augment": 0.0105, "load": 0.0228},
)
# DESIGN section 3: load 4 ms, augment 14 ms, collate 3 ms and a step of 16 ms, with one worker.
LAST_STRAW = Job(
    coupled={
        "device": 0.0161,
        "after_collate": 0.0172,
        "before_collate": 0.0171,
        "before_augment": 0.0176,
        "raw": 0.0217,
    },
    drained={"after_collate": 0.0005, "before_collate": 0.0032, "before_augment": 0.0178, "raw": 0.0219},
    without={"handoff": 0.0215, "collate": 0.0189, "augment": 0.0171, "load": 0.0178},
)
# The same, where each of three stages alone lifts the limit just as far.
TIED = replace(LAST_STRAW, without={"handoff": 0.0215, "collate": 0.0175, "augment": 0.0172, "load": 0.0174})
DEVICE_BOUND = Job(
    coupled=dict(zip(LADDER, (0.0300, 0.0301, 0.0302, 0.0302, 0.0303, 0.0303), strict=True)),
    drained={"after_collate": 0.001, "before_collate": 0.002, "before_augment": 0.008, "raw": 0.012},
    without=dict.fromkeys(STAGES[1:], 0.0303),
)


def measure(job: Job, *, rounds: int = 8, noise: float = 0.01, drift: float = 0.0, seed: int = 0) -> Result:
    """Simulate the rounds of a job.

    Args:
        job: The truth.
        rounds: Rounds measured.
        noise: Relative standard deviation of one block.
        drift: Relative standard deviation of the machine's speed from round to round, common to a round.
        seed: Seed of both.
    """
    random = np.random.default_rng(seed)
    speed = np.exp(random.normal(0, drift, rounds)) if drift else np.ones(rounds)

    def rate(seconds_per_batch: float | None) -> Rate | None:
        if seconds_per_batch is None:
            return None
        times = BATCHES * seconds_per_batch * speed * np.exp(random.normal(0, noise, rounds))
        return Rate.of(
            tuple(Block(r, BATCH_SIZE * BATCHES, float(t), BATCHES, float(t) / 2) for r, t in enumerate(times))
        )

    ladder = [name for name in LADDER if name in job.coupled]
    inner = [None, *ladder[:-1]]
    names = [stage for stage, experiment in zip(STAGES, LADDER, strict=True) if experiment in job.coupled]
    return Result(
        schema_version=SCHEMA_VERSION,
        tool=THIS_TOOL,
        verdict=NO_VERDICT,
        advice=(),
        created="2025-01-01T00:00:00Z",
        environment=job.environment,
        pipeline=job.pipeline,
        experiments=tuple(
            Experiment(
                n,
                True,
                None,
                rate(job.coupled[n]),
                rate(job.drained.get(n)),
                workers=rate(job.workers if n == "raw" else None),
                serving=rate(job.serving if n == "raw" else None),
            )
            for n in ladder
        ),
        without=tuple(Without(n, rate(job.without[n]), rate(job.alone.get(n))) for n in names if n in job.without),
        stages=tuple(Stage.between(s, i, o) for s, i, o in zip(names, inner, ladder, strict=True)),
        evidence=evidence_of(job.evidence),
        warnings=(),
        cost=Cost(seconds=30.0, batches=1, samples=1, cache_bytes=0),
    )


def map_blocks(measurement: Result, change: Any) -> Result:
    """Apply a function to every block; one that becomes None is dropped."""

    def each(rate: Rate | None) -> Rate | None:
        return Rate.of(tuple(filter(None, map(change, blocks_of(rate)))))

    return replace(
        measurement,
        experiments=tuple(
            replace(e, coupled=each(e.coupled), drained=each(e.drained)) for e in measurement.experiments
        ),
        without=tuple(replace(w, coupled=each(w.coupled)) for w in measurement.without),
    )


def map_coupled(measurement: Result, change: Any) -> Result:
    """Replace the coupled rate of each experiment by what a function makes of the experiment."""
    changed = tuple(replace(e, coupled=change(e)) for e in measurement.experiments)
    return replace(measurement, experiments=changed)


def keep_rounds(measurement: Result, rounds: int) -> Result:
    """Drop the blocks of later rounds."""
    return map_blocks(measurement, lambda block: block if block.round < rounds else None)
