"""The transforms of a stage, and the time of one worker in it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bottleneck.analysis.advice.case import Case
from bottleneck.analysis.parts import waiting_share
from bottleneck.analysis.settings import MOSTLY
from bottleneck.results.evidence import TransformSeen
from bottleneck.results.records import Stage

_CHANNELS = (1, 3, 4)
_SIZE = re.compile(r"(\d+(?:x\d+)+)\s*([\w.]*)")


@dataclass(frozen=True)
class Transform:
    """A single transform with all numbers known."""

    stage: str
    path: str
    name: str
    share: float
    """Its part of the stage's time."""
    wall_s_per_sample: float
    output: str
    """Size and type of its output."""
    module: str
    """Module that defines its class; empty if unknown."""

    @property
    def holder(self) -> str:
        """Return the path of the composition that contains it; empty if it is on its own."""
        return self.path[: self.path.rindex("[")] if self.path.endswith("]") else ""

    @property
    def pixels(self) -> int | None:
        """Pixels of the image that it returns; None if it returns none."""
        return pixels_of(self.output)


def pixels_of(output: str) -> int | None:
    """Return the pixels of an image, from the text on size and type of an output; None if it is not an image."""
    size = _SIZE.match(output)
    if size is None:
        return None
    sides = [int(side) for side in size[1].split("x")]
    if len(sides) == 2 and size[2][:1].isupper():  # a mode of Pillow's; types of tensors are in small letters
        return sides[0] * sides[1]
    if len(sides) == 3 and sides[0] in _CHANNELS:
        return sides[1] * sides[2]
    return sides[0] * sides[1] if len(sides) == 3 and sides[2] in _CHANNELS else None


def transforms_of(case: Case, stage: Stage) -> tuple[Transform, ...]:
    """Return the single transforms of a stage, in the order in which they are kept."""
    found = (_transform(case, seen) for seen in case.evidence.transforms if seen.stage == stage.name)
    return tuple(transform for transform in found if transform is not None)


def _transform(case: Case, seen: TransformSeen) -> Transform | None:
    share, calls, wall_s = seen.share, seen.calls_per_sample, seen.wall_s_per_call
    if not seen.path or not seen.name or not seen.stage or share is None or calls is None or wall_s is None:
        return None
    module = case.evidence.loader.transform_modules.get(seen.path, "")
    return Transform(seen.stage, seen.path, seen.name, share, calls * wall_s, seen.output or "", module)


def with_its_parts(transform: Transform, others: Sequence[Transform]) -> Transform:
    """Return a transform with the time of those in it; a composition, whose own time is less than theirs, as it is."""
    parts = [other for other in others if other.path.startswith((f"{transform.path}.", f"{transform.path}["))]
    if any(part.share > transform.share for part in parts):
        return transform
    share, wall_s = sum(part.share for part in parts), sum(part.wall_s_per_sample for part in parts)
    return replace(transform, share=transform.share + share, wall_s_per_sample=transform.wall_s_per_sample + wall_s)


def mostly_waits(case: Case, stage: Stage) -> bool:
    """Return True if a stage is known to spend most of its time without computing."""
    share = waiting_share(stage, case.evidence)
    return share is not None and share > MOSTLY


def undisturbed_s_per_batch(case: Case, stage: Stage) -> float | None:
    """Return the time per batch of a process with a core to itself, without its waits for a core."""
    work_s = work_s_per_batch(case, stage)
    if work_s is None or stage.wall_s_per_batch is None or stage.cpu_s_per_batch is None:
        return work_s
    cpu_s = stage.cpu_s_per_batch * max(1.0, case.workers)
    core_wait = max(0.0, case.evidence.core_wait_per_cpu_s or 0.0)
    return max(min(cpu_s, work_s), work_s - core_wait * cpu_s)


def work_s_per_batch(case: Case, stage: Stage) -> float | None:
    """Return the time per batch of one worker in a stage, not of all workers together."""
    workers = max(1.0, case.workers - (case.evidence.loader.idle_workers or 0))
    if stage.wall_s_per_batch is not None:
        return stage.wall_s_per_batch * workers
    return None if stage.cost_s_per_batch is None else max(0.0, stage.cost_s_per_batch.estimate) * workers
