"""Pipelines whose bottleneck is known because it was planted, each with the verdict that is right for it.

The costs of the stages are those of the loader alone: seconds per batch, a worker's time divided by the
number of workers. A train step that sleeps stands for an accelerator.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from benchmarks.checks import find_by_name
from benchmarks.datasets import (
    AnnotatedImages,
    Collate,
    CollateCostly,
    CollateMarked,
    CollateOnCanvas,
    ComposedImages,
    DictImages,
    Images,
    ImagesFinished,
    ImagesLoadedInline,
    MarkedImages,
    SlowCopy,
    Step,
    StreamedImages,
    UncutImages,
    collate_annotated,
)
from benchmarks.work import Kind, Work

Layout = Literal["torchvision", "inline", "finish", "dict", "uncut", "annotated", "marked", "stream", "composed"]

DEFAULT_LENGTH = 100_000
COMPOSED_TRANSFORMS = ("Crop", "Blur", "Jitter")
"""Single transforms inside the augmentation of the `composed` layout; planted like stages, and no stages."""
OWN_PROCESS_STAGES = ("copy", "handoff")
"""Stages that run in the main process, where more workers do not make them faster."""


@dataclass(frozen=True)
class PlantedStage:
    """A stage with its planted cost."""

    name: str
    cost_s_per_batch: float
    kind: Kind = "spin"


@dataclass(frozen=True)
class Planted:
    """A pipeline and what a right diagnosis of it says."""

    name: str
    what: str
    """For people: what was planted."""
    bottleneck: str
    stages: tuple[PlantedStage, ...]
    """Stages with a planted cost; the others cost what little they cost."""
    state: str = "input_bound"
    step_s: float = 0.010
    num_workers: int = 1
    batch_size: int = 16
    layout: Layout = "torchvision"
    boxes: int = 0
    """Python objects per sample of the `annotated` layout."""
    collate: Callable[[Work], Any] = Collate
    """Builds the collate function around the planted work."""
    extra: dict[str, Any] = field(default_factory=dict)
    """Further fields of the pipeline."""

    @property
    def costs_s_per_batch(self) -> dict[str, float]:
        """Stage -> planted cost in seconds per batch, `compute` included."""
        return {stage.name: stage.cost_s_per_batch for stage in self.stages} | {"compute": self.step_s}

    def work(self, stage: str) -> Work:
        """Work of the stage in one of its calls, which are per sample or per batch."""
        for planted in self.stages:
            if planted.name == stage:
                return Work(planted.kind, planted.cost_s_per_batch * self._calls_at_once(stage))
        return Work("wait", 0.0)

    def _calls_at_once(self, stage: str) -> float:
        """The time of one call as a multiple of the cost per batch."""
        workers = 1 if stage in OWN_PROCESS_STAGES else max(self.num_workers, 1)
        samples = 1 if stage in ("copy", "handoff", "collate", "pad") else self.batch_size
        return workers / samples

    def build(self, *, length: int = DEFAULT_LENGTH, **changes: Any) -> dict[str, Any]:
        """The fields of the pipeline, as a user's `build` returns them.

        Args:
            length: Samples in the dataset.
            **changes: Fields to replace.
        """
        fields: dict[str, Any] = {
            "dataset": _DATASETS[self.layout](self, length),
            "train_step": Step(Work("wait", self.step_s)),
            "device": "cpu",
            "batch_size": self.batch_size,
            "num_workers": self.num_workers,
            "drop_last": True,
        }
        planted = {stage.name for stage in self.stages}
        if "collate" in planted:
            fields["collate_fn"] = self.collate(self.work("collate"))
        if "pad" in planted:
            fields["collate_fn"] = CollateMarked(self.work("collate"), self.work("pad"))
        if "handoff" in planted:
            fields["collate_fn"] = CollateCostly(self.work("handoff"))
        if self.layout == "annotated":
            fields["collate_fn"] = collate_annotated
        if "copy" in planted:
            fields["to_device"] = SlowCopy(self.work("copy"))
        return {**fields, **self.extra, **changes}


_DATASETS: dict[str, Callable[[Planted, int], Any]] = {
    "torchvision": lambda p, n: Images(n, p.work("load"), p.work("augment")),
    "inline": lambda p, n: ImagesLoadedInline(n, p.work("load"), p.work("augment")),
    "finish": lambda p, n: ImagesFinished(n, p.work("augment"), p.work("load")),
    "dict": lambda p, n: DictImages(n, p.work("load"), p.work("augment")),
    "uncut": lambda p, n: UncutImages(n, p.work("fetch")),
    "marked": lambda p, n: MarkedImages(n, p.work("decode"), p.work("crop"), p.work("other")),
    "composed": lambda p, n: ComposedImages(n, *(p.work(name) for name in ("load", *COMPOSED_TRANSFORMS))),
    "stream": lambda p, n: StreamedImages(n, p.work("load"), p.work("augment")),
    "annotated": lambda p, n: AnnotatedImages(n, p.work("load"), p.work("augment"), p.boxes),
}


def _stages(**milliseconds: tuple[float, Kind]) -> tuple[PlantedStage, ...]:
    return tuple(PlantedStage(name, ms / 1000, kind) for name, (ms, kind) in milliseconds.items())


PLANTED: tuple[Planted, ...] = (
    Planted(
        name="device_bound",
        what="a loader twice as fast as the step",
        state="device_bound",
        bottleneck="compute",
        # Taking a batch from a queue whose worker computes costs up to four milliseconds, which must be well under
        # 5 % of the step: else the loss is real, and on the edge of what the verdict calls input-bound.
        step_s=0.100,
        stages=_stages(load=(27, "spin"), augment=(20, "spin")),
    ),
    Planted(
        name="balanced",
        what="a loader 10 % faster than the step: within noise of it",
        state="device_bound",
        bottleneck="compute",
        step_s=0.100,
        stages=_stages(load=(47, "wait"), augment=(43, "spin")),
    ),
    Planted(
        name="load_wait",
        what="loading that waits for input and output",
        bottleneck="load",
        num_workers=2,
        stages=_stages(load=(16, "wait"), augment=(2, "spin")),
    ),
    Planted(
        name="load_spin",
        what="loading that uses the CPU",
        bottleneck="load",
        stages=_stages(load=(15, "spin"), augment=(3, "spin")),
    ),
    Planted(
        name="augment_spin",
        what="an augmentation that uses the CPU",
        bottleneck="augment",
        stages=_stages(load=(3, "spin"), augment=(15, "spin")),
    ),
    Planted(
        name="augment_wait",
        what="an augmentation that waits",
        bottleneck="augment",
        num_workers=2,
        stages=_stages(load=(2, "wait"), augment=(14, "wait")),
    ),
    Planted(
        name="collate_spin",
        what="a collate function of the user's that uses the CPU",
        bottleneck="collate",
        stages=_stages(load=(2, "spin"), augment=(2, "spin"), collate=(14, "spin")),
    ),
    Planted(
        name="handoff_objects",
        what="batches of many Python objects, pickled and unpickled",
        bottleneck="handoff",
        step_s=0.008,
        stages=_stages(load=(1, "spin"), augment=(1, "spin")),
        layout="annotated",
        boxes=600,
    ),
    Planted(
        name="handoff_unpickle",
        what="a batch that takes the main process 40 ms to unpickle",
        bottleneck="handoff",
        stages=_stages(load=(2, "spin"), augment=(2, "spin"), handoff=(40, "spin")),
    ),
    Planted(
        name="copy_slow",
        what="a slow copy to the device",
        bottleneck="copy",
        step_s=0.012,
        stages=_stages(load=(2, "spin"), augment=(3, "spin"), copy=(6, "wait")),
    ),
    Planted(
        name="last_straw",
        what="augmentation is the largest cost, loading the one that tips the balance",
        bottleneck="augment",
        step_s=0.016,
        stages=_stages(load=(4, "spin"), augment=(14, "spin"), collate=(3, "spin")),
    ),
    Planted(
        name="no_workers",
        what="no workers: everything in the main process",
        bottleneck="augment",
        num_workers=0,
        stages=_stages(load=(2, "spin"), augment=(8, "spin")),
    ),
    Planted(
        name="finish",
        what="work after the augmentation, inside __getitem__, which counts as loading",
        bottleneck="load",
        layout="finish",
        stages=_stages(load=(14, "spin"), augment=(2, "spin")),
        extra={"augment": "transform"},
    ),
    Planted(
        name="load_inline",
        what="loading without a loader attribute, in __getitem__ itself",
        bottleneck="load",
        layout="inline",
        stages=_stages(load=(15, "spin"), augment=(3, "spin")),
    ),
    Planted(
        name="dict_samples",
        what="samples that are dicts, fetched a batch at a time",
        bottleneck="augment",
        layout="dict",
        stages=_stages(load=(3, "spin"), augment=(15, "spin")),
    ),
    Planted(
        name="fetch",
        what="a dataset that cannot be cut",
        bottleneck="fetch",
        layout="uncut",
        stages=_stages(fetch=(18, "spin")),
    ),
    Planted(
        name="marked_crop",
        what="stages that the author marked, called twice a sample; one is slow",
        bottleneck="crop",
        layout="marked",
        stages=_stages(decode=(3, "spin"), other=(2, "spin"), crop=(13, "spin")),
    ),
    Planted(
        name="marked_other",
        what="marked stages that are quick, and slow code around them",
        bottleneck="other",
        layout="marked",
        stages=_stages(decode=(2, "spin"), other=(13, "spin"), crop=(3, "spin")),
    ),
    Planted(
        name="marked_pad",
        what="a slow function within the collation, marked",
        bottleneck="pad",
        stages=_stages(load=(2, "spin"), augment=(2, "spin"), collate=(2, "spin"), pad=(12, "spin")),
    ),
    Planted(
        name="large_batch",
        what="a collate function of the user's that pads images to a batch of 38 MB",
        bottleneck="collate",
        stages=_stages(load=(2, "spin"), augment=(2, "spin"), collate=(40, "spin")),
        collate=CollateOnCanvas,
    ),
    Planted(
        name="large_alone",
        what="the same in the main process",
        bottleneck="collate",
        num_workers=0,
        stages=_stages(load=(2, "spin"), augment=(4, "spin"), collate=(30, "spin")),
        collate=CollateOnCanvas,
    ),
    Planted(
        name="composed",
        what="a Compose of three transforms, one of them slow, one of them in a RandomApply",
        bottleneck="augment",
        layout="composed",
        stages=_stages(load=(2, "spin"), augment=(18, "spin"), Crop=(3, "spin"), Blur=(11, "spin"), Jitter=(4, "spin")),
    ),
    Planted(
        name="stream",
        what="a stream, sharded over two workers, that augments slowly",
        bottleneck="augment",
        layout="stream",
        num_workers=2,
        stages=_stages(load=(4, "wait"), augment=(14, "wait")),
    ),
)

SLOW_STEPS: tuple[Planted, ...] = (
    Planted(
        name="slow_device_bound",
        what="a step of one second, fed in time",
        state="device_bound",
        bottleneck="compute",
        step_s=1.0,
        stages=_stages(load=(200, "wait"), augment=(100, "wait")),
    ),
    Planted(
        name="slow_load",
        what="a step of one second, waiting half as long again for its input",
        bottleneck="load",
        step_s=1.0,
        num_workers=2,
        stages=_stages(load=(1400, "wait"), augment=(100, "wait")),
    ),
)


def find_planted(name: str) -> Planted:
    """The planted pipeline of that name."""
    return find_by_name(PLANTED + SLOW_STEPS, name)
