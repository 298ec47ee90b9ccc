"""Builds realistic Result records for tests: fixed numbers, no clock, no randomness.

The job is that of DESIGN section 6: a step of 9.4 ms on the device, held at 24.7 ms by its augmentation.
Every builder takes the fields to change as keywords.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bottleneck.results import json as border
from bottleneck.results.evidence import Evidence
from bottleneck.results.records import (
    SCHEMA_VERSION,
    Advice,
    Block,
    Cost,
    Experiment,
    Interval,
    Rate,
    Result,
    Stage,
    Tool,
    Verdict,
    Warning,
    Without,
)

BATCH_SIZE = 16
BATCHES_PER_BLOCK = 40
# Relative deviations of the six rounds from the mean; they add up to nothing, so that totals are exact.
JITTER = (0.004, -0.006, 0.002, -0.003, 0.007, -0.004)

COUPLED_S_PER_BATCH = {
    "device": 0.00940,
    "host": 0.00947,
    "after_collate": 0.00967,
    "before_collate": 0.00976,
    "before_augment": 0.02279,
    "raw": 0.02469,
}
DRAINED_S_PER_BATCH = {"after_collate": 0.0012, "before_collate": 0.0018, "before_augment": 0.0225, "raw": 0.0243}
WITHOUT_S_PER_BATCH = {"copy": 0.02466, "handoff": 0.02450, "collate": 0.02420, "augment": 0.00992, "load": 0.02279}
STAGES = ("compute", "copy", "handoff", "collate", "augment", "load")
OBSERVED_S_PER_BATCH: dict[str, tuple[float | None, float | None]] = {
    **dict.fromkeys(STAGES, (None, None)),
    "collate": (0.0008, 0.0008),
    "augment": (0.0210, 0.0202),
    "load": (0.0019, 0.0004),
}


def make_blocks(seconds_per_batch: float, rounds: int = 6) -> tuple[Block, ...]:
    """Blocks of one experiment, one a round, whose mean is `seconds_per_batch` when there are six."""
    # Each experiment starts elsewhere in the list, so that their deviations are not the same.
    start = round(seconds_per_batch * 1e5)
    jitters = (JITTER[(start + index) % len(JITTER)] for index in range(rounds))
    times = [seconds_per_batch * BATCHES_PER_BLOCK * (1 + jitter) for jitter in jitters]
    samples = BATCHES_PER_BLOCK * BATCH_SIZE
    return tuple(Block(index, samples, s, BATCHES_PER_BLOCK, s * 0.501) for index, s in enumerate(times))


def make_rate(seconds_per_batch: float, rounds: int = 6) -> Rate:
    """A rate with its blocks, known to 0.7 %."""
    samples_per_s = BATCH_SIZE / seconds_per_batch
    low, high = samples_per_s * (1 - 0.007), samples_per_s * (1 + 0.007)
    return Rate(samples_per_s, low, high, seconds_per_batch, make_blocks(seconds_per_batch, rounds))


def make_interval(estimate: float, half_width: float) -> Interval:
    """A symmetric interval; `half_width` is absolute."""
    return Interval(estimate, estimate - half_width, estimate + half_width)


def make_experiments() -> tuple[Experiment, ...]:
    """The whole ladder; `after_augment` does not apply."""
    ladder = []
    for name, seconds in COUPLED_S_PER_BATCH.items():
        drained = DRAINED_S_PER_BATCH.get(name)
        ladder.append(Experiment(name, True, None, make_rate(seconds), make_rate(drained) if drained else None))
    reason = "no code follows the augmentation inside __getitem__, so it is the same as before_collate"
    ladder.insert(4, Experiment("after_augment", False, reason, None, None))
    return tuple(ladder)


def make_stages() -> tuple[Stage, ...]:
    """The stages between the rungs, as an analysis would derive them from the tables above."""
    rungs = list(COUPLED_S_PER_BATCH)
    coupled, drained = list(COUPLED_S_PER_BATCH.values()), DRAINED_S_PER_BATCH
    stages = []
    for index, name in enumerate(STAGES):
        outer, inner = rungs[index], rungs[index - 1] if index else None
        exposed = coupled[index] - (coupled[index - 1] if index else 0.0)
        alone = drained[outer] - drained.get(inner or "", 0.0) if outer in drained else exposed
        gain = COUPLED_S_PER_BATCH["raw"] / WITHOUT_S_PER_BATCH[name] if index else None
        share = exposed / COUPLED_S_PER_BATCH["raw"]
        stages.append(
            Stage(
                name=name,
                inner=inner,
                outer=outer,
                cost_s_per_batch=make_interval(alone, 0.0003),
                exposed_s_per_batch=make_interval(exposed, 0.0002),
                exposed_share=make_interval(share, 0.008),
                gain_if_free=make_interval(gain, gain * 0.02) if gain else None,
                finding="real" if name in {"compute", "augment", "load"} else "within_noise",
                wall_s_per_batch=OBSERVED_S_PER_BATCH[name][0],
                cpu_s_per_batch=OBSERVED_S_PER_BATCH[name][1],
            )
        )
    return tuple(stages)


def make_verdict() -> Verdict:
    """Input-bound by the augmentation."""
    return Verdict(
        state="input_bound",
        bottleneck="augment",
        contributors=("load",),
        efficiency=Interval(0.381, 0.362, 0.400),
        headroom=Interval(2.62, 2.50, 2.76),
        sentence=(
            "The input pipeline limits this job to 38 % (36–40 %) of what its device can do. "
            "Bottleneck: augment. Contributing: load.\n"
            "If augment were free: 2.5x (2.4–2.5) the throughput. "
            "Upper bound: 1,702 samples/s, now 648."
        ),
    )


def make_advice() -> tuple[Advice, ...]:
    """Two items; the second has a remedy of several lines."""
    return (
        Advice(
            id="more-workers",
            stage="augment",
            title="Use more workers",
            why="The loader alone needs 24.3 ms a batch with 2 workers, and 8 cores are available.",
            how="DataLoader(..., num_workers=6)",
            evidence={"num_workers": 2, "cpu_cores_available": 8},
            gain=Interval(2.62, 1.0, 2.62),
            gain_basis="estimated",
        ),
        Advice(
            id="cheaper-augment",
            stage="augment",
            title="Make the augmentation cheaper",
            why="It takes 20.7 ms of the 24.3 ms that the loader needs for a batch.",
            how="import torch\ntorch.set_num_threads(1)  # in worker_init_fn",
            evidence={"cost_s_per_batch": 0.0207},
            gain=make_interval(2.489, 0.0498),
            gain_basis="measured",
        ),
    )


def make_transforms() -> list[dict[str, Any]]:
    """Return observations of the augmentation: the crop comes late, and one transform waits."""

    def row(place: str, name: str, calls: float, wall_s: float, cpu_s: float, share: float, output: str):
        return {
            "stage": "augment", "path": f"transform.transforms{place}", "name": name, "calls_per_sample": calls,
            "wall_s_per_call": wall_s, "cpu_s_per_call": cpu_s, "share": share, "output": output,
        }  # fmt: skip

    return [
        row("[0].transforms[0]", "ColorJitter", 0.8, 0.00142, 0.00139, 0.433, "500x375 RGB, varies"),
        row("[1]", "RandomResizedCrop", 1.0, 0.00061, 0.00060, 0.232, "224x224 RGB"),
        row("[2]", "LookUpMask", 1.0, 0.00040, 0.00004, 0.152, "224x224 RGB"),
        row("[3]", "ToTensor", 1.0, 0.00006, 0.00006, 0.023, "3x224x224 float32"),
    ]


def make_payload() -> dict[str, Any]:
    """One batch: images that would fit into a quarter of their bytes, and labels."""
    how = "send uint8 and convert on the device: batch.to(device).float().div_(255)"
    return {
        "bytes": 9633920,
        "tensors": [
            {"path": "[0]", "shape": [16, 3, 224, 224], "dtype": "float32", "bytes": 9633792},
            {"path": "[1]", "shape": [16], "dtype": "int64", "bytes": 128},
        ],
        "objects": 0,
        "savings": [
            {
                "id": "few-levels",
                "path": "[0]",
                "what": "float32 with 256 different values",
                "how": how,
                "bytes_saved": 7225344,
            }
        ],
    }


def evidence_of(plain: Mapping[str, Any] | Evidence) -> Evidence:
    """Return the evidence from its JSON, as read from a file."""
    if isinstance(plain, Evidence):
        return plain
    document = {"evidence": dict(plain)}
    border._prepare(document, "The evidence")
    return border._converted(document["evidence"], Evidence, "The evidence")


EVIDENCE: dict[str, Any] = {
    "first_batch_s": 0.84,
    "wait_s": {"p50": 0.0148, "p95": 0.0213, "p99": 0.0302, "max": 0.0518},
    "payload": make_payload(),
    "transforms": make_transforms(),
    "transforms_note": "The transforms add up to 84 % of augment; the rest is what the compositions do "
    "themselves, and code around them.",
    "lines": [
        {
            "stage": "augment",
            "path": "/usr/lib/python3/dist-packages/torchvision/transforms/_functional_pil.py",
            "line": 94,
            "function": "adjust_hue",
            "code": 'h, s, v = img.convert("HSV").split()',
            "calls": "PIL.Image.convert",
            "share": 0.41,
            "waiting_share": 0.01,
            "library": True,
        },
        {
            "stage": "augment",
            "path": "src/train.py",
            "line": 38,
            "function": "__call__",
            "code": "mask = self.masks[image.filename]",
            "calls": "shelve.__getitem__",
            "share": 0.15,
            "waiting_share": 0.9,
            "library": False,
        },
        {
            "stage": "collate",
            "path": "src/train.py",
            "line": 51,
            "function": "collate",
            "code": None,
            "calls": None,
            "share": 1.0,
            "waiting_share": None,
            "library": False,
        },
    ],
    "core_wait_per_cpu_s": 0.02,
    "device_time": {
        "batches": 234,
        "copy_s_per_batch": 0.0004,
        "step_s_per_batch": 0.0094,
        "idle_s_per_batch": 0.0149,
        "efficiency": {"estimate": 0.381, "low": 0.37, "high": 0.392},
    },
}
"""Evidence besides the blocks, as in JSON."""


def make_result(**changes: Any) -> Result:
    """A complete diagnosis, input-bound by its augmentation; `changes` replaces top-level fields."""
    result = Result(
        schema_version=SCHEMA_VERSION,
        tool=Tool("torch-bottleneck", "0.1.0"),
        created="2025-01-31T12:00:00Z",
        environment={
            "device": "cuda:0",
            "device_name": "NVIDIA H100",
            "torch": "2.15.0",
            "python": "3.11.7",
            "platform": "Linux x86_64",
            "cpu_cores": 8,
            "cpu_cores_available": 8.0,
            "memory_bytes": 68719476736,
        },
        pipeline={
            "dataset": "torchvision.datasets.folder.ImageFolder",
            "dataset_length": 1281167,
            "batch_size": BATCH_SIZE,
            "num_workers": 2,
            "pin_memory": True,
            "persistent_workers": False,
            "prefetch_factor": 2,
            "start_method": "fork",
        },
        experiments=make_experiments(),
        without=tuple(Without(name, make_rate(t)) for name, t in WITHOUT_S_PER_BATCH.items()),
        stages=make_stages(),
        verdict=make_verdict(),
        advice=make_advice(),
        evidence=evidence_of(EVIDENCE),
        warnings=(
            Warning("other-load", "Other processes used 1.3 cores while measuring. Stop them and measure again."),
        ),
        cost=Cost(seconds=47.3, batches=4120, samples=65920, cache_bytes=222298112),
    )
    if "evidence" in changes:
        changes["evidence"] = evidence_of(changes["evidence"])
    return replace(result, **changes)


def make_device_bound_result(**changes: Any) -> Result:
    """A job that its device holds, on the CPU: there is no copy, and no stage of the loader shows."""
    reason = "the device is the CPU, where the default transfer copies nothing"
    rungs = ("device", "after_collate", "before_collate", "before_augment", "raw")
    experiments = [Experiment(name, True, None, make_rate(0.0500), make_rate(0.0100)) for name in rungs]
    experiments.insert(1, Experiment("host", False, reason, None, None))
    compute = Stage(
        "compute",
        None,
        "device",
        cost_s_per_batch=make_interval(0.05, 0.0004),
        exposed_s_per_batch=make_interval(0.05, 0.0004),
        exposed_share=make_interval(0.988, 0.008),
        gain_if_free=None,
        finding="real",
    )
    verdict = Verdict(
        state="device_bound",
        bottleneck="compute",
        contributors=(),
        efficiency=Interval(0.988, 0.980, 0.996),
        headroom=Interval(1.012, 1.004, 1.020),
        sentence=(
            "The train step limits this job; the input pipeline costs 1.2 % (0.4–2.0 %) of its throughput. "
            "Bottleneck: compute.\n"
            "Upper bound: 320 samples/s, now 316."
        ),
    )
    fields: dict[str, Any] = {
        "environment": {"device": "cpu", "torch": "2.15.0"},
        "experiments": tuple(experiments),
        "without": (),
        "stages": (compute,),
        "evidence": {key: EVIDENCE[key] for key in ("first_batch_s", "wait_s")},
        "verdict": verdict,
        "advice": (),
        "warnings": (),
    }
    return make_result(**{**fields, **changes})


def make_interrupted_result(**changes: Any) -> Result:
    """Stopped after one round: two rungs have one block, the others none, and nothing is decided."""
    one_block = replace(make_rate(0.0094, rounds=1), low=BATCH_SIZE / 0.0094, high=BATCH_SIZE / 0.0094)
    experiments = tuple(
        replace(e, coupled=one_block if e.name in {"device", "raw"} else None, drained=None) for e in make_experiments()
    )
    stages = tuple(Stage.between(stage.name, stage.inner, stage.outer) for stage in make_stages())
    sentence = "Too little was measured for a verdict: 1 round. 5 more rounds would probably decide it."
    fields: dict[str, Any] = {
        "experiments": experiments,
        "without": (Without("augment", None),),
        "stages": stages,
        "verdict": Verdict("undecided", None, (), None, None, sentence, further_rounds=5),
        "advice": (),
        "evidence": {},
        "warnings": (Warning("interrupted", "The diagnosis was interrupted. Let it finish."),),
        "cost": Cost(1.2, 80, 1280, 0),
    }
    return make_result(**{**fields, **changes})


def make_empty_result(**changes: Any) -> Result:
    """Nothing was measured at all."""
    fields: dict[str, Any] = {
        "environment": {},
        "pipeline": {},
        "experiments": (),
        "without": (),
        "stages": (),
        "verdict": Verdict("undecided", None, (), None, None, "Nothing was measured."),
        "advice": (),
        "evidence": {},
        "warnings": (),
        "cost": Cost(0.0, 0, 0, 0),
    }
    return make_result(**{**fields, **changes})


USAGE: dict[str, Any] = {
    "cores": {"usable": 8.0, "allowed": 8},
    "experiments": [
        {"name": "device", "mode": "coupled", "cores_main": 0.5, "cores_workers": 0.0, "cores_other": 0.0},
        {"name": "raw", "mode": "coupled", "cores_main": 0.3, "cores_workers": 1.7, "cores_other": 0.5},
        {"name": "raw", "mode": "drained", "cores_main": 0.1, "cores_workers": 1.8, "cores_other": 0.5},
    ],
    "workers": {"count": 2, "private_bytes": 500 << 20, "cache_bytes": 100 << 20},
}
"""Resources that the job and its processes used."""
READS: dict[str, Any] = {"experiments": [{"name": "raw", "asked_bytes_per_sample": 100_000, "source": "page cache"}]}


def make_plannable_result(evidence: Mapping[str, Any] | None = None, **changes: Any) -> Result:
    """A diagnosis that says enough for a plan."""
    seen = {**EVIDENCE, "utilisation": USAGE, "reads": READS}
    return make_result(evidence={**seen, **(evidence or {})}, **changes)
