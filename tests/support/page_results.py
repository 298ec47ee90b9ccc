"""Results with everything that a page can show, a flamegraph among it. Fixed numbers, no clock."""

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


def make_usage() -> dict[str, Any]:
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
    }


def make_page_result(profile: StackProfile | None = None) -> Result:
    """A complete diagnosis whose page has every part."""
    result = make_result()
    stages = [stage.name for stage in result.stages]
    seen = evidence_of({"utilisation": make_usage()})
    profiled = summarise_profile(profile or make_profile(), stages)
    evidence = replace(result.evidence, profile=profiled, utilisation=seen.utilisation)
    return replace(result, evidence=evidence)
