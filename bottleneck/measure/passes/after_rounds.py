"""Passes after the rounds, as they would disturb timed blocks: traces, the model, profiles."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from bottleneck.measure.bench import Bench
from bottleneck.measure.evidence.waits import describe_waits
from bottleneck.measure.ladder import Ladder
from bottleneck.measure.ledger import Ledger
from bottleneck.measure.machine.environment import read_cpuinfo, switches_left_on
from bottleneck.measure.machine.limits import PROC
from bottleneck.measure.options import MeasureOptions
from bottleneck.measure.passes.more_workers import MAX_TRIAL_S, is_worth_trying, try_workers
from bottleneck.measure.passes.one_thread import TRIAL_S, is_worth_a_trial, may_be_worth_a_trial, try_one_thread
from bottleneck.measure.passes.profile import profile
from bottleneck.measure.passes.trace import trace
from bottleneck.results.evidence import ModelFacts
from bottleneck.results.warnings.unseen import trace_left_out

LOOK_S = 1.2
"""Seconds for watching a loop, typically."""
_BFLOAT16_FLAGS = ("avx512_bf16", "amx_bf16", "bf16")
"""Flags in /proc/cpuinfo of processors that multiply bfloat16 in hardware: x86, x86 and Arm."""


@dataclass(frozen=True)
class Passes:
    """Passes of a diagnosis once its rounds are over."""

    device: torch.device
    bench: Bench
    ledger: Ledger
    options: MeasureOptions
    budget_s: float
    """Budget of the whole diagnosis."""
    tell: Callable[[str], None]
    trains: bool = True
    """True if steps may be run, False if other ranks would have to run them as well."""
    left_s: Callable[[], float] = lambda: math.inf
    """Returns the seconds left of the budget."""
    begin_round: Callable[[], None] = lambda: None
    """Restores the state of training, before each round of a trial."""

    def expected_s(self) -> float:
        """Return their approximate time."""
        if not self.trains:
            return 0.0
        looks = self.options.loop.look is not None and not self.options.loop.has_queue
        seconds = LOOK_S if looks else 0.0
        if not self.options.quick:
            seconds += TRIAL_S * may_be_worth_a_trial(self.bench, self.ledger)
        return seconds

    def run(self, *, device_bound: bool) -> None:
        """Run all of them; the steps of a device-bound job are traced even if no trace is asked for."""
        note_waits(self.bench, self.ledger)
        if self.options.trace and not self.trains:
            self.ledger.warn(trace_left_out())
        is_slow = self.trains and not device_bound and not self.options.quick
        if is_slow and is_worth_a_trial(self.bench, self.ledger):
            self.tell("trying one thread in each worker")
            with suppress(Exception):  # such as the script's own end: the measurements are worth more
                try_one_thread(self.bench, self.ledger, self.begin_round)
        self._try_workers(device_bound=device_bound)
        self._look_at_loop()
        if self.trains and (self.options.trace or device_bound):
            self.tell("tracing")
            trace(self.bench, self.device, self.ledger, asked_for=self.options.trace)
        self.ledger.note(model=describe_model(self.device, self.ledger.evidence.model))
        if self.options.profile is not None:
            self.tell("profiling")
            profile(self.bench.loader, self.options.profile, self.budget_s, self.ledger)

    def _look_at_loop(self) -> None:
        """Watch the loop of a script for a moment, keep the observations, and read the switches that are on."""
        loop, bench = self.options.loop, self.bench
        found = dict.fromkeys(switches_left_on(self.device))
        self.ledger.note(switches=tuple(found))
        if loop.seen is None:
            return
        if loop.look is not None and self.trains and not loop.has_queue:
            self.tell("watching the loop")
            with suppress(Exception):  # such as the script's own end: the measurements are worth more
                bench.prepare(Ladder.device)
                loop.look(
                    lambda: bench.step(bench.device.serve().batch),
                    bench.synchronize,
                    lambda: found.update(dict.fromkeys(switches_left_on(self.device))),
                )
        self.ledger.note(loop=loop.seen(), switches=tuple(found))

    def _try_workers(self, *, device_bound: bool) -> None:
        # No time is kept for it: most diagnoses end before their budget does. Without it, the gain is predicted.
        if device_bound or not self.trains or self.left_s() < MAX_TRIAL_S / 2:
            return
        if self.ledger.evidence.network.more.bytes_per_s:  # emulated workers would know no limit of the network
            return
        if is_worth_trying(self.bench, self.ledger, on_cpu=self.device.type == "cpu"):
            self.tell("trying more workers")
            with suppress(Exception):  # such as the script's own end: the measurements are worth more
                try_workers(self.bench, self.ledger, self.begin_round)


def note_waits(bench: Bench, ledger: Ledger) -> None:
    """Keep the job's waits for its batches as evidence, once, if they were measured."""
    waits_s, blocks = bench.waits_s.get(Ladder.raw), ledger.blocks.get(Ladder.raw, [])
    if ledger.evidence.wait_s.count is None and waits_s:
        waits, stalls = describe_waits(waits_s, blocks, bench.loader.num_workers)
        ledger.note(wait_s=waits, stalls=stalls)


def describe_model(device: torch.device, facts: ModelFacts) -> ModelFacts:
    """Add facts about the device that rules on computing need."""
    if device.type == "cpu":
        return replace(facts, cpu_bfloat16=cpu_multiplies_bfloat16())
    if device.type != "cuda" or torch.version.hip is not None:  # on AMD's devices these two numbers mean something else
        return facts
    properties = torch.cuda.get_device_properties(device)
    return replace(facts, device_capability=(properties.major, properties.minor))


def cpu_multiplies_bfloat16(proc: Path = PROC) -> bool | None:
    """Return True if the processor multiplies bfloat16 in hardware; None if unknown."""
    flags = read_cpuinfo("flags", "features", proc=proc)
    return None if flags is None else any(flag in flags.split() for flag in _BFLOAT16_FLAGS)
