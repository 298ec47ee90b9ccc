"""Threads: of the workers, and of a train step on the CPU."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch

from bottleneck.job.pipeline import Pipeline
from bottleneck.job.step import with_step_options
from bottleneck.results.tuning import Outcome
from bottleneck.tuning.change import Change, Here
from bottleneck.tuning.epochs import NO_WORKERS
from bottleneck.tuning.steps import ProcessSetting

# --- of the workers ---------------------------------------------------------------------------------------


class _Threads:
    """Gives a worker its threads, after what the user's own `worker_init_fn` does."""

    def __init__(self, threads: int, given: Callable[[int], None] | None) -> None:
        self.threads, self.given = threads, given

    def __call__(self, worker: int) -> None:
        if self.given is not None:
            self.given(worker)
        torch.set_num_threads(self.threads)
        opencv: Any = sys.modules.get("cv2")
        if opencv is not None:
            opencv.setNumThreads(self.threads)


def _present(here: Here) -> int:
    """PyTorch gives a worker one thread."""
    init = here.loader.worker_init_fn
    return init.threads if isinstance(init, _Threads) else 1


def _next_of_workers(here: Here, judged: Mapping[Any, Outcome]) -> int | None:
    # OpenCV has as many as there are cores in each worker, unless it is told otherwise.
    if "cv2" in sys.modules and not isinstance(here.loader.worker_init_fn, _Threads) and 1 not in judged:
        return 1
    doubled = 2 * _present(here)
    return doubled if doubled * here.loader.num_workers <= here.cores and doubled not in judged else None


def _why_not_of_workers(here: Here) -> str | None:
    if not here.loader.num_workers:
        return NO_WORKERS
    if "cv2" not in sys.modules and 2 * _present(here) * here.loader.num_workers > here.cores:
        return "a worker has one thread, and there is no core for another"
    return None


def _of_workers(pipeline: Pipeline, value: int) -> Pipeline:
    given = pipeline.make_loader().worker_init_fn
    users = given.given if isinstance(given, _Threads) else given
    return pipeline.replace(worker_init_fn=_Threads(value, users))


# --- of a train step on the CPU ---------------------------------------------------------------------------


def _why_not_of_step(here: Here) -> str | None:
    if here.device.type != "cpu":
        return f"the job trains on {here.device.type}"
    return "the train step has one thread already" if torch.get_num_threads() == 1 else None


def _next_of_step(here: Here, judged: Mapping[Any, Outcome]) -> int | None:
    wanted = (here.cores - here.loader.num_workers, here.cores // 2, 1)
    around = [each for each in here.pipeline._step_options.within if isinstance(each, ProcessSetting)]
    present = next((each.value for each in around if each.put is torch.set_num_threads), torch.get_num_threads())
    return next((count for count in wanted if 0 < count < present and count not in judged), None)


def _of_step(pipeline: Pipeline, value: int) -> Pipeline:
    return with_step_options(pipeline, ProcessSetting(torch.get_num_threads, torch.set_num_threads, value))


_SOURCE = "https://docs.pytorch.org/docs/stable/generated/torch.set_num_threads.html"

CHANGES = (
    Change(
        "worker_threads", _of_workers, alters="nothing",
        line="def threads(worker): torch.set_num_threads({value})  # and cv2.setNumThreads({value})\n"
        "DataLoader(..., worker_init_fn=threads)",
        advice=("thread-oversubscription",), why_not=_why_not_of_workers, next_value=_next_of_workers, source=_SOURCE,
    ),
    Change(
        "threads", _of_step, on="step", alters="nothing", line="torch.set_num_threads({value})",
        advice=("fewer-threads",), why_not=_why_not_of_step, next_value=_next_of_step, source=_SOURCE,
    ),
)  # fmt: skip
