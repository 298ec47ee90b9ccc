"""Results with everything that a page can show, the functions of a profile among it. Fixed numbers, no clock."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bottleneck.results.evidence import FunctionSeen, Profile
from bottleneck.results.records import Result
from tests.support.results_factory import evidence_of, make_result

TRANSFORMS = "torchvision/transforms/transforms.py"
FUNCTIONS = tuple(
    FunctionSeen(function=function, file=file, line=line, stage=stage, own_share=share)
    for function, file, line, stage, share in (
        ("blend", "PIL/Image.py", 3751, "augment", 0.45),
        ("RandomResizedCrop.forward", TRANSFORMS, 962, "augment", 0.225),
        ("LookUpMask.__call__", "train.py", 55, "augment", 0.15),
        ("ImageFile.load", "PIL/ImageFile.py", 296, "load", 0.09),
        ("ColorJitter.forward", TRANSFORMS, 1268, "augment", 0.075),
        ("default_collate", "torch/utils/data/_utils/collate.py", 337, "collate", 0.01),
    )
)


def make_usage() -> dict[str, Any]:
    """The evidence of utilisation, with one experiment in the table."""
    row = {
        "name": "raw", "mode": "coupled", "seconds": 5.4, "cores_busy": 4.3, "cores_main": 0.6,
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


def make_page_result(functions: tuple[FunctionSeen, ...] = FUNCTIONS) -> Result:
    """A complete diagnosis whose page has every part."""
    result = make_result()
    seen = evidence_of({"utilisation": make_usage()})
    profile = Profile(
        sampler="py-spy", rate_hz=100, seconds=2.0, samples=800, processes=2, in_workers=True, functions=functions
    )
    evidence = replace(result.evidence, profile=profile, utilisation=seen.utilisation)
    return replace(result, evidence=evidence)
