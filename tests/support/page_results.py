"""Results with everything that a page can show: a flamegraph and utilisation over time. Fixed numbers, no clock."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bottleneck.analysis.advice.hotspots import summarise_profile
from bottleneck.results.records import Result
from bottleneck.results.stacks import Frame, Stack, StackProfile, WorkerStacks
from tests.support.results_factory import evidence_of, make_result

GET = Frame("Photos.__getitem__", "train.py", 20)
OPEN = Frame("open_photograph", "train.py", 31)
DECODE = Frame("ImageFile.load", "PIL/ImageFile.py", 296)
COMPOSE = Frame("Compose.__call__", "torchvision/transforms/transforms.py", 93)
JITTER = Frame("ColorJitter.forward", "torchvision/transforms/transforms.py", 1268)
BLEND = Frame("blend", "PIL/Image.py", 3751)
CROP = Frame("RandomResizedCrop.forward", "torchvision/transforms/transforms.py", 962)
LOOK_UP = Frame("LookUpMask.__call__", "train.py", 55)
COLLATE = Frame("default_collate", "torch/utils/data/_utils/collate.py", 337)

STACKS = (
    Stack((GET, COMPOSE, JITTER, BLEND), "augment", 180, 178),
    Stack((GET, COMPOSE, JITTER), "augment", 30, 30),
    Stack((GET, COMPOSE, CROP), "augment", 90, 90),
    Stack((GET, COMPOSE, LOOK_UP), "augment", 60, 6),
    Stack((GET, OPEN, DECODE), "load", 36, 30),
    Stack((COLLATE,), "collate", 4, 4),
)


def make_profile(stacks: tuple[Stack, ...] = STACKS) -> StackProfile:
    """What a profiler saw in two workers alike."""
    return StackProfile("py-spy", 100, 4.0, (WorkerStacks(0, stacks), WorkerStacks(1, stacks)))


def make_series(rounds: int = 6, gpu: bool = True) -> dict[str, Any]:
    """A row for each block of some rounds, with gaps in between and memory that grows a little."""
    kinds = (
        ("device", "coupled", 1.0, 0.96, 0.0),
        ("after_collate", "coupled", 1.6, 0.93, 0.0),
        ("before_augment", "coupled", 3.4, 0.41, 0.0),
        ("raw", "coupled", 3.8, 0.38, 2.2e6),
        ("raw", "drained", 3.0, None, 2.3e6),
        ("augment", "without", 2.6, 0.90, 2.2e6),
    )
    rows, now_s = [], 0.0
    for number in range(rounds):
        for name, mode, cores, busy, disk in kinds[:: 1 if number % 2 else -1]:
            rows.append(
                {
                    "begin_s": round(now_s, 3),
                    "end_s": round(now_s + 0.9, 3),
                    "name": name,
                    "mode": mode,
                    "cores_busy": cores + 0.4 + 0.05 * number,
                    "cores_job": cores,
                    "disk_read_bytes_per_s": disk,
                    "gpu_busy_share": busy if gpu else None,
                }
            )
            now_s += 1.2
    memory = [
        {"time_s": 2.0 * turn, "private_bytes": 800_000_000 + 9_000_000 * turn, "shared_bytes": 300_000_000}
        for turn in range(int(now_s // 2))
    ]
    return {"blocks_per_row": 1, "blocks": rows, "memory": memory}


def make_steps() -> list[dict[str, float]]:
    """Steps of two workers that deliver one after the other: every second batch is waited for."""
    return [{"wait_s": 0.0302 if number % 2 == 0 else 0.0003, "work_s": 0.0094} for number in range(24)]


def make_watched() -> dict[str, Any]:
    """The same steps with the making of their batches, of which each worker has a pair at a time."""
    steps = [{"begin_s": 0.0246 * number, "wait_s": 0.0148, "work_s": 0.0094} for number in range(24)]
    stages_s = {"load": 0.004, "augment": 0.04, "collate": 0.003}
    batches = [
        {"worker": worker, "begin_s": begin_s, "end_s": begin_s + 0.0475, "stages_s": stages_s}
        for worker in range(2)
        for begin_s in (0.049 * turn + 0.0245 * worker - 0.02 for turn in range(11))
    ]
    return {"steps": steps, "batches": batches}


def make_usage(series: dict[str, Any]) -> dict[str, Any]:
    """The evidence of utilisation, with one experiment in the table."""
    row = {
        "name": "raw", "mode": "coupled", "seconds": 5.4, "samples": 20, "cores_busy": 4.3, "cores_main": 0.6,
        "cores_workers": 3.2, "cores_other": 0.5, "disk_read_bytes_per_s": 2.2e6, "disk_write_bytes_per_s": 0.0,
        "network_bytes_per_s": 120.0, "gpu": {"busy_share": 0.38},
    }  # fmt: skip
    return {
        "cores": {"usable": 8.0, "quota": None, "allowed": 8},
        "experiments": [row],
        "workers": {"count": 2, "private_bytes": 1_070_000_000},
        "shared_memory": None,
        "missing": [],
        "series": series,
    }


def make_page_result(profile: StackProfile | None = None, series: dict[str, Any] | None = None) -> Result:
    """A complete diagnosis whose page has every part."""
    result = make_result()
    stages = [stage.name for stage in result.stages]
    usage = make_usage(series or make_series())
    seen = evidence_of({"utilisation": usage, "steps": make_steps(), "watched": make_watched()})
    profiled = summarise_profile(profile or make_profile(), stages)
    evidence = replace(
        result.evidence, profile=profiled, utilisation=seen.utilisation, steps=seen.steps, watched=seen.watched
    )
    return replace(result, evidence=evidence)
