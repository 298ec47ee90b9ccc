"""Tunings for tests of reports: fixed numbers, no clock. Every builder takes the fields to change as keywords.

The job is that of `results_factory`, short of workers; then its train step holds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from bottleneck.results.records import SCHEMA_VERSION, Advice, Block, Experiment, Interval, Result, Tool, Warning
from bottleneck.results.tuning import Outcome, Pair, Rung, Trial, TuningResult
from tests.support.results_factory import make_device_bound_result, make_interval, make_rate, make_result

SOURCE = {"target": "train.py:build", "commit": "3f2c1ab"}
GIB = 1 << 30
BASE_S = 0.02469
PROMISED = Interval(2.62, 1.0, 2.62)


def make_before() -> Result:
    """Held by its augmentation, which more workers would hide."""
    result = make_result()
    return replace(result, pipeline={**result.pipeline, **SOURCE})


def make_after() -> Result:
    """Held by its train step; of its advice, one piece has been tried."""
    made = make_device_bound_result(environment=make_result().environment)
    rungs = ("device", "host", "after_collate", "before_collate", "before_augment", "raw")
    compute = replace(
        made.stages[0],
        cost_s_per_batch=make_interval(0.0093, 0.0001),
        exposed_s_per_batch=make_interval(0.0093, 0.0001),
    )
    slow = Advice("faster-step", "compute", "Make the train step faster", "It takes the time.", "a trace of it", {})
    tried = Advice("more-workers", "load", "Use more workers", "There are cores.", "num_workers=8", {})
    return replace(
        made,
        experiments=tuple(Experiment(name, True, None, make_rate(0.0094), make_rate(0.004)) for name in rungs),
        stages=(compute,),
        pipeline={**made.pipeline, **SOURCE, "num_workers": 6},
        advice=(tried, slow),
    )


def make_rung(settings: Sequence[str], seconds_per_batch: float, before_s: float | None = None, **changes: Any) -> Rung:
    """A rung with its gain over the one before, if there is one."""

    def factor(over_s: float | None) -> Interval | None:
        gained = None if over_s is None else over_s / seconds_per_batch
        return None if gained is None else make_interval(gained, 0.012 * gained)

    rung = Rung(
        settings=tuple(settings),
        alters=("nothing",) * len(settings),
        rate=make_rate(seconds_per_batch),
        gain=factor(before_s),
        total=factor(BASE_S if before_s is not None else None),
        predicted=None,
        peak_device_bytes=3 * GIB,
        setup_s=0.4,
    )
    return replace(rung, **changes)


def make_ladder() -> tuple[Rung, ...]:
    """Three steps up: one that was promised, two that come as one, and one that takes time to begin."""
    return (
        make_rung((), BASE_S),
        make_rung(("num_workers=6",), 0.01215, BASE_S, predicted=PROMISED),
        make_rung(
            ("pin_memory", "autocast"), 0.0107, 0.01215, alters=("memory", "numbers"),
            peak_device_bytes=2 * GIB,
        ),
        make_rung(("compile",), 0.0094, 0.0107, setup_s=31.0),
    )  # fmt: skip


def make_trial(setting: str, outcome: Outcome, factor: float | None = None, **changes: Any) -> Trial:
    """A trial with two pairs whose factor it is."""
    pairs = [Pair(Block(n, 640, 1.0, 40), Block(n, 640, 1 / factor, 40)) for n in range(2)] if factor else []
    trial = Trial(
        setting=setting,
        on_top_of=("num_workers=6",),
        on="loader",
        alters="nothing",
        outcome=outcome,
        reason=None,
        gain=make_interval(factor, 0.011) if factor else None,
        predicted=None,
        pairs=tuple(pairs),
        setup_s=0.4 if factor else None,
        changes=tuple(each.partition("=")[0] for each in setting.split(" + ")),
    )
    return replace(trial, **changes)


def make_trials() -> tuple[Trial, ...]:
    """One of each outcome, and a setting that was tried twice."""
    return (
        make_trial("num_workers=4", "kept", 1.87, on_top_of=(), predicted=PROMISED),
        make_trial("num_workers=6", "kept", 1.08, on_top_of=("num_workers=4",), predicted=PROMISED),
        make_trial("prefetch_factor=4", "dropped", 0.98, on_top_of=("num_workers=4",)),
        make_trial("prefetch_factor=4", "dropped", 1.004),
        make_trial("in_order", "undecided", 1.02, predicted=Interval(1.08, 1.02, 1.14)),
        make_trial("pin_memory + autocast", "kept", 1.14),
        make_trial("channels_last", "failed", reason="CUDA out of memory. Tried to allocate 2.00 GiB"),
        make_trial("compile", "kept", 1.13),
        make_trial("uint8_images", "not_applicable", reason="the dataset is a stream", on_top_of=()),
        make_trial("fused_optimizer", "not_tried", reason="there was no time left for it", on_top_of=()),
    )


def make_tuning(**changes: Any) -> TuningResult:
    """A complete tuning; `changes` replaces top-level fields."""
    before, ladder = make_before(), make_ladder()
    tuning = TuningResult(
        schema_version=SCHEMA_VERSION,
        kind="tuning",
        tool=Tool("torch-bottleneck", "0.1.0"),
        created="2025-01-31T12:00:00Z",
        environment=before.environment,
        pipeline=before.pipeline,
        sentence=(
            "2.6x (2.6–2.7) the throughput with num_workers=6, pin_memory, autocast and compile: 1,702 samples/s, "
            "before 648 samples/s."
        ),
        gain=ladder[-1].total,
        ladder=ladder,
        trials=make_trials(),
        lines=(
            "DataLoader(..., num_workers=6)",
            "DataLoader(..., pin_memory=True)\nbatch = batch.to(device, non_blocking=True)",
            "model = torch.compile(model)",
        ),
        before=before,
        after=make_after(),
        warnings=(Warning("other-load", "Other processes kept 1.3 cores busy while blocks were measured."),),
        seconds=287.0,
    )
    return replace(tuning, **changes)


def make_tuning_without_a_gain(**changes: Any) -> TuningResult:
    """Nothing was kept."""
    fields: dict[str, Any] = {
        "sentence": (
            "No change makes this job clearly more than 2 % faster: 2 settings tried. It runs at 648 samples/s."
        ),
        "gain": None,
        "ladder": make_ladder()[:1],
        "trials": make_trials()[2:5],
        "lines": (),
        "after": make_before(),
        "warnings": (),
    }
    return make_tuning(**{**fields, **changes})
