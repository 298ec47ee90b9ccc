"""What to change first: each item rests on numbers of this run, and the one with the most to gain leads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from bottleneck.analysis.advice.rule import Case, Item, Rule, open_case, rule
from bottleneck.analysis.advice.rules import (
    augment,
    compute,
    cores,
    launch,
    loading,
    payload,
    resources,
    stages,
    transfer,
    waiting,
    worker_count,
    workers,
)
from bottleneck.analysis.estimates.series import Readings
from bottleneck.results.format import duration, gain, percent_interval
from bottleneck.results.names import COPY
from bottleneck.results.records import Advice, Interval, Measurement, Stage, Verdict


def advise(
    measurement: Measurement, readings: Readings, stages: Sequence[Stage], verdict: Verdict
) -> tuple[Advice, ...]:
    """Return the advice, largest expected gain first; nothing without evidence of this run."""
    case = open_case(measurement, readings, stages, verdict)
    if case is None:
        return ()
    items = [item for rule in RULES for item in rule(case) if _is_due(case, item)]
    answered = {item.advice.stage for item in items if not item.fallback}
    kept = [item for item in items if not item.fallback or item.advice.stage not in answered]
    given = [_priced(case, item) for item in kept]
    return tuple(sorted(given, key=lambda advice: advice.gain.estimate if advice.gain else 1.0, reverse=True))


def _is_due(case: Case, item: Item) -> bool:
    """Tell whether the stage that an item is about costs the job anything."""
    stage = case.stage(item.advice.stage) if item.advice.stage else None
    return stage is None or not case.costs_nothing(stage)


def _priced(case: Case, item: Item) -> Advice:
    """Return the advice with the gain to be expected of it, and what that rests on."""
    stage = case.stage(item.advice.stage) if item.advice.stage else None
    measured = stage.gain_if_free if stage is not None and item.basis == "measured" else None
    if measured is not None:
        return replace(item.advice, gain=measured, gain_basis="measured")
    if item.interval is None and item.gain <= 1:
        return item.advice
    expected = item.interval or Interval(item.gain, 1.0, item.gain)
    return replace(item.advice, gain=expected, gain_basis="estimated")


@rule("pin-memory")
def _pin_memory(case: Case) -> Iterator[Item]:
    """Advise pinned memory where the copy to a CUDA device really costs time."""
    copy = case.stage(COPY)
    if copy is None or copy.finding != "real" or copy.exposed_s_per_batch is None:
        return
    if case.pipeline.get("pin_memory") is not False or not str(case.device).startswith("cuda"):
        return
    exposed_s = copy.exposed_s_per_batch.estimate
    advice = Advice(
        id="pin-memory",
        stage=COPY,
        title="Copy from pinned memory, while the device computes",
        why=f"The copy to the device adds {duration(exposed_s)} to each {duration(case.step_s)} step.",
        how="DataLoader(..., pin_memory=True) and batch.to(device, non_blocking=True)",
        evidence={"pin_memory": False, "exposed_s_per_batch": exposed_s},
    )
    yield Item(case.gain_of(copy), advice, basis=case.basis_of(copy))


@rule("measure-longer")
def _decide(case: Case) -> Iterator[Item]:
    """Advise a longer measurement where the state is undecided."""
    if case.verdict.state != "undecided" or case.budget is None or case.lost is None:
        return
    advice = Advice(
        id="measure-longer",
        stage=None,
        title="Measure longer before changing anything",
        why=f"The loss is {percent_interval(case.lost)}: it may be worth work or not. At most "
        f"{gain(case.headroom)} is to be gained.",
        how=f"--budget {case.budget}",
        evidence={"loss_low": case.lost.low, "loss_high": case.lost.high},
    )
    yield Item(1.0, advice)


RULES: tuple[Rule, ...] = (
    _pin_memory,
    _decide,
    *stages.RULES,
    *payload.RULES,
    *cores.RULES,
    *resources.RULES,
    *compute.RULES,
    *launch.RULES,
    *loading.RULES,
    *augment.RULES,
    *transfer.RULES,
    *workers.RULES,
    *worker_count.RULES,
    *waiting.RULES,
)
"""Every rule; a module of rules adds its own here."""
