"""The user's data as a run observed it: single transforms, images, and the work of a stage."""

from __future__ import annotations

import re
from dataclasses import dataclass

from bottleneck.analysis.advice.rule import Case
from bottleneck.analysis.parts import waiting_share
from bottleneck.results.evidence import TensorSeen, TransformSeen
from bottleneck.results.records import Stage

MOSTLY = 0.5
"""The part of a stage's time from which on it counts as what the stage does."""
_CHANNELS = (1, 3, 4)
_SIZE = re.compile(r"(\d+(?:x\d+)+)\s*([\w.]*)")


@dataclass(frozen=True)
class Transform:
    """A single transform, all of whose numbers are known."""

    stage: str
    path: str
    name: str
    share: float
    """Its part of the stage's time."""
    wall_s_per_sample: float
    output: str
    """Size and type of what it returns."""
    module: str
    """Where its class is defined; empty where that is unknown."""

    @property
    def holder(self) -> str:
        """The path of the composition that holds it; empty for one that stands alone."""
        return self.path[: self.path.rindex("[")] if self.path.endswith("]") else ""

    @property
    def pixels(self) -> int | None:
        """Pixels of the image that it returns; None where that is none."""
        return pixels_of(self.output)

    @property
    def gives_pil(self) -> bool:
        """Whether it returns an image of Pillow's."""
        size = _SIZE.match(self.output)
        return size is not None and _is_pil(size)


def _is_pil(size: re.Match[str]) -> bool:
    """Types of arrays and tensors are in small letters, modes of Pillow's in capitals."""
    return size[1].count("x") == 1 and size[2][:1].isupper()


def pixels_of(output: str) -> int | None:
    """The pixels of an image, from the text on size and type of an output; None where that is none."""
    size = _SIZE.match(output)
    if size is None:
        return None
    sides = [int(side) for side in size[1].split("x")]
    if _is_pil(size):
        return sides[0] * sides[1]
    if len(sides) == 3 and sides[0] in _CHANNELS:
        return sides[1] * sides[2]
    return sides[0] * sides[1] if len(sides) == 3 and sides[2] in _CHANNELS else None


def transforms_of(case: Case, stage: Stage) -> tuple[Transform, ...]:
    """The single transforms of a stage, in the order in which they are kept."""
    found = (_transform(case, seen) for seen in case.evidence.transforms if seen.stage == stage.name)
    return tuple(transform for transform in found if transform is not None)


def _transform(case: Case, seen: TransformSeen) -> Transform | None:
    share, calls, wall_s = seen.share, seen.calls_per_sample, seen.wall_s_per_call
    if not seen.path or not seen.name or not seen.stage or share is None or calls is None or wall_s is None:
        return None
    module = case.evidence.loader.transform_modules.get(seen.path, "")
    return Transform(seen.stage, seen.path, seen.name, share, calls * wall_s, seen.output or "", module)


def shows_images(case: Case) -> bool:
    """Whether the run had images: in its transforms, or as a tensor of the batch with channels."""
    if case.evidence.loader.decoded_pixels_per_sample is not None:
        return True
    if any(pixels_of(seen.output or "") is not None for seen in case.evidence.transforms):
        return True
    return any(_is_image(tensor) for tensor in case.evidence.payload.tensors)


def _is_image(tensor: TensorSeen) -> bool:
    """Whether a tensor of the batch has channels, height and width; a mask of whole numbers is none."""
    shape, dtype = tensor.shape, tensor.dtype or ""
    if len(shape) != 4 or not (dtype == "uint8" or "float" in dtype):
        return False
    first, last = shape[1] in _CHANNELS and min(shape[2:]) > 1, shape[3] in _CHANNELS and min(shape[1:3]) > 1
    return first or last


def mostly_waits(case: Case, stage: Stage) -> bool:
    """Whether a stage is known to pass most of its time without computing."""
    share = waiting_share(stage, case.evidence)
    return share is not None and share > MOSTLY


def undisturbed_s_per_batch(case: Case, stage: Stage) -> float | None:
    """What a batch takes of a process with a core to itself, without the time that it stood ready for one."""
    work_s = work_s_per_batch(case, stage)
    if work_s is None or stage.wall_s_per_batch is None or stage.cpu_s_per_batch is None:
        return work_s
    cpu_s = stage.cpu_s_per_batch * max(1.0, case.workers)
    core_wait = max(0.0, case.evidence.core_wait_per_cpu_s or 0.0)
    return max(min(cpu_s, work_s), work_s - core_wait * cpu_s)


def work_s_per_batch(case: Case, stage: Stage) -> float | None:
    """What a batch takes of one worker in a stage: of its time, not of all workers' together."""
    workers = max(1.0, case.workers)
    if stage.wall_s_per_batch is not None:
        return stage.wall_s_per_batch * workers
    return None if stage.cost_s_per_batch is None else max(0.0, stage.cost_s_per_batch.estimate) * workers
