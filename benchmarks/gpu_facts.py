"""Diagnoses and tunings as facts of a line of `benchmarks.gpu_evidence`. It needs no torch."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.gpu_lines import RESULTS
from bottleneck.results.records import Interval, Result

Note = Callable[..., None]
MIN_DIAGNOSIS_S = 5.0


@dataclass(frozen=True)
class Place:
    """Folder and device of a part.

    Attributes:
        folder: Folder of the lines.
        device: Device that jobs compute on.
        scale: Factor on all seconds; below 1 in a rehearsal.
    """

    folder: Path
    device: str
    scale: float

    @property
    def rehearsed(self) -> bool:
        """Steps sleep instead of computing."""
        return self.device == "cpu"


# --- a diagnosis -------------------------------------------------------------------------------------------


class Told:
    """Notes when a diagnosis tells its state and its name, and what each of its phases takes.

    Args:
        clock: A steady clock.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock, self._at = clock, [(clock(), "start")]
        self._first_s: dict[str, float] = {}

    def note(self, update: Any) -> None:
        """Take a ProgressUpdate."""
        now = self._clock()
        self._at.append((now, update.phase))
        for name in ("state", "bottleneck"):
            if getattr(update, name) is not None:
                self._first_s.setdefault(name, round(now - self._at[0][0], 1))

    def facts(self) -> dict[str, Any]:
        """Seconds in all, until state and name, and by phase; a phase lasts until the next is heard of."""
        taken: dict[str, float] = {}
        for (begun_s, phase), (until_s, _) in pairwise([*self._at, (self._clock(), "")]):
            taken[phase] = round(taken.get(phase, 0.0) + until_s - begun_s, 1)
        took_s = round(self._clock() - self._at[0][0], 1)
        first = {"state_s": self._first_s.get("state"), "name_s": self._first_s.get("bottleneck")}
        return {"took_s": took_s, **first, "phases": taken}


def values(interval: Interval | None) -> list[float] | None:
    """An interval as its estimate, low and high."""
    return None if interval is None else [interval.estimate, interval.low, interval.high]


def describe(result: Result) -> dict[str, Any]:
    """The facts of a diagnosis."""
    verdict, measured = result.verdict, {e.name: e.coupled for e in result.experiments if e.coupled is not None}
    each_s, batch_size = result.evidence.loaded_batches.seconds_each, result.pipeline.get("batch_size")
    return {
        "state": verdict.state,
        "bottleneck": verdict.bottleneck,
        "contributors": list(verdict.contributors),
        "efficiency": values(verdict.efficiency),
        "samples_per_s": {name: rate.samples_per_s for name, rate in measured.items()},
        "rounds": {name: len(rate.blocks) for name, rate in measured.items()},
        "cost_s": {stage.name: values(stage.cost_s_per_batch) for stage in result.stages if stage.cost_s_per_batch},
        "gain_if_free": {stage.name: values(stage.gain_if_free) for stage in result.stages if stage.gain_if_free},
        "advice": [
            {"id": one.id, "gain": values(one.gain), "proposed": one.evidence.get("proposed")} for one in result.advice
        ],
        "warnings": sorted({warning.id for warning in result.warnings}),
        "worker_ms": 1e3 * each_s / batch_size if each_s and batch_size else None,
    }


def keep_result(folder: Path, name: str, json_text: str) -> None:
    """Keep a whole result, for a look at its blocks later."""
    with (folder / RESULTS).open("a", encoding="utf-8") as file:
        file.write(json.dumps({"name": name, "result": json.loads(json_text)}) + "\n")


def describe_tuning(tuning: dict[str, Any]) -> dict[str, Any]:
    """The facts of a tuning that was saved as JSON."""
    rate = [(rung["settings"], rung["rate"]) for rung in tuning["ladder"]]
    return {
        "sentence": tuning["sentence"],
        "gain": _interval(tuning["gain"]),
        "rungs": [
            {"settings": settings, "samples_per_s": _interval(found, "samples_per_s"), "rounds": len(found["blocks"])}
            for settings, found in rate
        ],
        "trials": [
            {
                "setting": trial["setting"],
                "outcome": trial["outcome"],
                "gain": _interval(trial["gain"]),
                "pairs": len(trial["pairs"]),
                "reason": trial["reason"],
            }
            for trial in tuning["trials"]
        ],
        "warnings": sorted({warning["id"] for warning in tuning["warnings"]}),
    }


def _interval(found: dict[str, Any] | None, estimate: str = "estimate") -> list[float] | None:
    return None if found is None else [found[estimate], found["low"], found["high"]]
