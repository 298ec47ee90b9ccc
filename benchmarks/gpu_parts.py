"""Parts of `benchmarks.gpu_evidence` that diagnose a described job between plain loops of it."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

import bottleneck
from benchmarks.gpu_facts import MIN_DIAGNOSIS_S, Note, Place, Told, describe, keep_result
from benchmarks.gpu_host import Host
from benchmarks.gpu_job import CopyJob, Job, LoadedJob, Settings
from benchmarks.gpu_truth import WARM_UP_S, Clocked, Marks, PlainLoop, time_step_alone

_ON_DEVICE_S = 2.0
_AFTERWARDS = 1.1
"""Time of each plain loop after the diagnosis, as a multiple of the first one's."""


# --- a diagnosis -------------------------------------------------------------------------------------------


@contextmanager
def interrupted_after(seconds: float) -> Iterator[None]:
    """Press Ctrl-C after a while, at which a diagnosis ends with what it has."""
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def diagnose_within(fields: dict[str, Any], patience_s: float, told: Told, **options: Any) -> tuple[Any, str | None]:
    """Diagnose a job, and return the diagnosis and what ended it early.

    Raises:
        bottleneck.BottleneckError: It ended before there was one.
    """
    try:
        with interrupted_after(patience_s):
            return bottleneck.diagnose(fields, progress=told.note, **options), None
    except (KeyboardInterrupt, bottleneck.MeasurementError) as error:
        found = getattr(error, "diagnosis", None)
        if found is None:
            raise
        return found, f"{type(error).__name__}: {error}"


# --- between plain loops -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trial:
    """A job, and a change to it that the diagnosis may advise.

    Attributes:
        settings: Settings of the job.
        change: Function of the settings and the facts of the diagnosis that returns the changed settings.
        plain_s: Seconds of a plain loop.
        diagnosis_s: Budget of the diagnosis; None: its own.
        sleeps_s: Seconds of a step in a rehearsal.
        make: Function that makes the job.
    """

    settings: Settings
    change: Callable[[Settings, dict[str, Any]], Settings]
    plain_s: float
    diagnosis_s: float | None
    sleeps_s: float
    make: Callable[[Settings, torch.device], LoadedJob] = Job


class Between:
    """Diagnoses a job between plain loops of it, which use nothing of bottleneck's.

    Args:
        trial: Job and its change.
        place: Folder and device.
    """

    def __init__(self, trial: Trial, place: Place) -> None:
        self._trial, self._place, self._host = trial, place, Host()
        self._device = torch.device(place.device)
        self._marks = Marks(self._device)
        settings = trial.settings.rehearsed(trial.sleeps_s) if place.rehearsed else trial.settings
        self._job = trial.make(settings, self._device)
        self._job.warm_up()
        if place.rehearsed:
            torch.set_num_threads(1)  # what a step computes stands for nothing, and takes the cores of the workers

    def run(self, note: Note, limit_s: float) -> None:
        """Run all of it within a time, and note what each loop and the diagnosis found."""
        began_s = time.perf_counter()
        until_s = began_s + limit_s
        kept = self._plain("plain_before", self._job, note)
        plain_s = time.perf_counter() - began_s
        alone_s = self._place.scale * _ON_DEVICE_S
        note("on_device", step_ms=time_step_alone(self._job.train_step, kept, alone_s, self._marks))
        del kept
        patience_s = until_s - time.perf_counter() - 2 * _AFTERWARDS * plain_s
        found = self._diagnose(note, max(MIN_DIAGNOSIS_S, patience_s))
        self._plain("plain_after", self._job, note)
        changed = self._trial.change(self._job.settings, found)
        self._plain("plain_changed", self._trial.make(changed, self._device), note)

    def _plain(self, name: str, job: LoadedJob, note: Note) -> list[Any]:
        """Note a plain loop, and return batches that are on the device."""
        gc.collect()  # a worker must not collect what the job before has left on the device
        data, scale = Clocked(job.dataset()), self._place.scale
        loop = PlainLoop(
            lambda batch: job.to_device(batch, job.device),
            job.train_step,
            job.settings.workers,
            self._marks,
            job.samples,
            clocked=data,
        )
        with self._host.calibrated() as host:
            found = loop.run(job.loader(data), scale * self._trial.plain_s, scale * WARM_UP_S)
        note(name, job=str(job.settings), workers=job.settings.workers, **found.facts(), **host)
        return loop.kept

    def _diagnose(self, note: Note, patience_s: float) -> dict[str, Any]:
        gc.collect()
        budget_s, on_cuda = self._trial.diagnosis_s, not self._place.rehearsed
        if on_cuda:
            torch.cuda.reset_peak_memory_stats()
        else:
            budget_s = MIN_DIAGNOSIS_S
        with self._host.calibrated() as host:
            told = Told()
            result, failure = diagnose_within(self._job.fields(), patience_s, told, budget=budget_s)
            facts = {**told.facts(), **describe(result), "ended_early": failure}
        peak = torch.cuda.max_memory_allocated() if on_cuda else None
        note("diagnosis", job=str(self._job.settings), **facts, **host, peak_bytes=peak)
        keep_result(self._place.folder, str(self._job.settings), result.to_json())
        return facts


# --- the jobs ----------------------------------------------------------------------------------------------


MORE_WORKERS = 12


def with_advised_workers(settings: Settings, found: dict[str, Any]) -> Settings:
    """As many workers as the diagnosis proposes, and twelve where it proposes none."""
    proposed = [(one["proposed"] or {}).get("num_workers") for one in found["advice"] if one["id"] == "more-workers"]
    workers = next(filter(None, proposed), MORE_WORKERS if settings.sleeps_s is None else 2)
    return replace(settings, workers=workers)


_TRIALS = {
    "few_workers": Trial(Settings(workers=3), with_advised_workers, plain_s=6.0, diagnosis_s=None, sleeps_s=0.012),
    "enough_workers": Trial(
        Settings(workers=16),
        lambda settings, _: replace(settings, autocast=True),
        plain_s=5.0,
        diagnosis_s=None,
        sleeps_s=0.080,
    ),
    "fast_step": Trial(
        Settings(workers=16, autocast=True, channels_last=True),
        lambda settings, _: replace(settings, uint8=True),
        plain_s=6.0,
        diagnosis_s=30.0,
        sleeps_s=0.016,
    ),
    "copies": Trial(
        Settings(workers=8, batch_size=64, pinned=False),
        lambda settings, _: replace(settings, pinned=True),
        plain_s=4.0,
        diagnosis_s=20.0,
        sleeps_s=0.010,
        make=CopyJob,
    ),
}
PARTS = {name: partial(Between, trial) for name, trial in _TRIALS.items()}
