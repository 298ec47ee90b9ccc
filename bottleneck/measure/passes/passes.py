"""The passes after the rounds: each measures something that would disturb a timed block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from bottleneck.errors import MeasurementError
from bottleneck.measure.bench import Bench
from bottleneck.measure.explain_errors import job_failures
from bottleneck.measure.facts.batch_waits import (
    WATCH_S,
    WATCH_SHARE,
    describe_waits,
    find_stalls,
    worth_watching,
)
from bottleneck.measure.facts.model_facts import describe_model
from bottleneck.measure.ledger import Ledger
from bottleneck.measure.options import MeasureOptions
from bottleneck.measure.passes.profile import profile
from bottleneck.measure.passes.trace import TraceResult, trace


@dataclass(frozen=True)
class Passes:
    """What is done once the rounds are over."""

    device: torch.device
    bench: Bench
    ledger: Ledger
    options: MeasureOptions
    budget_s: float
    """Of the whole diagnosis."""
    tell: Callable[[str], None]
    trains: bool = True
    """Steps may be made: not where other ranks would have to make them too."""
    state_bytes: int = 0
    """Device memory that copies of the training's state took until now."""

    def run(self, *, device_bound: bool) -> None:
        """Make all of them; the steps of a device-bound job are traced also where no trace is asked for."""
        note_waits(self.bench, self.ledger)
        if self.trains:
            self._watch_stalls()
        elif self.options.trace:
            self.ledger.warn("trace-left-out", "There are no traces: in a job of many ranks no rank trains by itself.")
        self._look_into_steps(device_bound=device_bound)
        self._profile()

    def _watch_stalls(self) -> None:
        """Look for the period of stalls in a run without a break, where the blocks were too short to show it."""
        stalls = self.ledger.evidence.stalls
        if self.ledger.ladder is None or not worth_watching(stalls):
            return
        self.tell("watching stalls")
        raw = self.ledger.ladder.raw
        waits: list[float] = []
        seconds = 0.0
        with self._all_is_measured("stalls-not-watched", "The period of the stalls is not known."):
            self.bench.prepare(raw)
            waits, seconds = self.bench.watch(raw, min(WATCH_S, WATCH_SHARE * self.budget_s))
        seen = find_stalls([waits], seconds, self.bench.loader.num_workers)
        if seen is not None:
            stalls = replace(stalls, period_batches=seen.period_batches, period_s=seen.period_s)
            self.ledger.evidence = replace(self.ledger.evidence, stalls=stalls)

    @contextmanager
    def _all_is_measured(self, id_: str, lost: str) -> Iterator[None]:
        """Let a failure of the job cost what this pass would have shown, and not the verdict."""
        try:
            with job_failures("raw"):
                yield
        except MeasurementError as error:
            self.ledger.warn(id_, f"{lost} {error.message}")

    def _look_into_steps(self, *, device_bound: bool) -> None:
        """Trace a few steps where that is worth it, and describe the model."""
        traced, ladder, asked_for = TraceResult(), self.ledger.ladder, self.options.trace
        if ladder is not None and self.trains and (asked_for or device_bound):
            self.tell("tracing")
            traced = trace(self.bench, ladder, self.device, self.ledger.seconds_per_batch, asked_for=asked_for)
        self._warn(traced.warnings)
        self.ledger.traces = tuple(traced.files)
        ours_bytes = self.state_bytes + self.bench.cached_bytes(self.device)
        model = describe_model(self.device, traced.computed_dtypes, ours_bytes)
        self.ledger.evidence = replace(self.ledger.evidence, trace=traced.evidence, model=model)

    def _profile(self) -> None:
        if self.options.profile is None:
            return
        self.tell("profiling")
        spans = self.ledger.ladder.spans if self.ledger.ladder is not None else ()
        profiled = profile(self.bench.loader, self.options.profile, self.budget_s, [span.name for span in spans])
        self.ledger.profile_files = profiled.files
        self.ledger.evidence = replace(self.ledger.evidence, profile=profiled.evidence)
        self._warn(profiled.warnings)

    def _warn(self, warnings: Any) -> None:
        for id_, message in warnings:
            self.ledger.warn(id_, message)


def note_waits(bench: Bench, ledger: Ledger) -> None:
    """Keep as evidence, once, how long the job waited for its batches, as far as it was measured."""
    raw = ledger.ladder.raw if ledger.ladder is not None else None
    if raw is not None and ledger.evidence.wait_s.count is None and bench.waits_s.get(raw):
        blocks = ledger.blocks.get(raw, [])
        waits, stalls = describe_waits(bench.waits_s[raw], blocks, bench.loader.num_workers)
        ledger.evidence = replace(ledger.evidence, wait_s=waits, stalls=stalls)
