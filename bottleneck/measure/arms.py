"""The experiments of one diagnosis, each as something that can be run.

An *arm* is one way to run the job: which loader stages work, which batch the train step gets, and whether there is
a train step at all. Several experiments of the result can share an arm: `before_augment` is also 'without load'.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bottleneck.results.records import StageSpan
from bottleneck.staging import stages

Supply = Literal["device", "host", "loader"]


@dataclass(frozen=True)
class Arm:
    """One way to run the job.

    Attributes:
        mode: Loader stages that work for real; None: the loader rests.
        supply: Where the batch that the train step gets comes from; `device` batches are there already, the
            others are copied.
        coupled: With the train step; otherwise the loader alone.
    """

    mode: int | None
    supply: Supply
    coupled: bool = True


@dataclass(frozen=True)
class Rung:
    """One experiment of the ladder and the arms that measure it."""

    name: str
    reason: str | None = None
    """Why it is not available; None when it is."""
    coupled: Arm | None = None
    drained: Arm | None = None
    workers: Arm | None = None
    """As drained, but nothing is handed over; without workers there is no such arm."""


@dataclass(frozen=True)
class Ladder:
    """What is measured: the rungs, the stages between them, and the arms 'without X'."""

    rungs: tuple[Rung, ...]
    spans: tuple[StageSpan, ...]
    without: tuple[tuple[str, Arm], ...]

    def arms(self) -> tuple[Arm, ...]:
        """Every arm once."""
        found: dict[Arm, None] = {}
        for rung in self.rungs:
            for arm in (rung.coupled, rung.drained, rung.workers):
                if arm is not None:
                    found[arm] = None
        for _, arm in self.without:
            found[arm] = None
        return tuple(found)

    def naming_arms(self) -> tuple[Arm, ...]:
        """The arms that decide which stage is the bottleneck: the gains if free, and the costs."""
        workers = (rung.workers for rung in self.rungs if rung.workers is not None)
        return tuple(dict.fromkeys((self.device, self.raw, *(arm for _, arm in self.without), *workers)))

    @property
    def device(self) -> Arm:
        """The upper bound."""
        return next(r.coupled for r in self.rungs if r.name == "device" and r.coupled is not None)

    @property
    def raw(self) -> Arm:
        """What the job really gets."""
        return next(r.coupled for r in self.rungs if r.name == "raw" and r.coupled is not None)


@dataclass(frozen=True)
class Capabilities:
    """What can be measured in this pipeline.

    Attributes:
        copies: There is a copy to the device.
        hands_over: Batches travel between processes, or are pinned.
        within_sample: Stages inside `__getitem__`, from the device outwards; `("fetch",)` if it cannot be cut.
        has_samples: Single samples fit into the caches.
        has_collated: Collated batches fit into the workers' caches.
        can_stop: The code behind the augmentation can be left out.
        passes_tokens: The loader hands on what the workers return, so that a batch may be left out of it.
        fetch_reason: Why `__getitem__` is not cut.
    """

    copies: bool
    hands_over: bool
    within_sample: tuple[str, ...]
    has_samples: bool = True
    has_collated: bool = True
    can_stop: bool = False
    passes_tokens: bool = True
    fetch_reason: str = ""


_OUTER_EXPERIMENT = {"finish": "after_augment", "augment": "before_augment", "load": "raw", "fetch": "raw"}
_NO_ROOM = "does not fit into the memory for caches; give more with cache_bytes"


def _reasons(can: Capabilities) -> dict[str, str]:
    """Why an experiment is not available, for those that are not."""
    reasons: dict[str, str] = {}
    if not can.copies:
        reasons["host"] = "the device is the CPU, so that nothing is copied"
    if not can.hands_over:
        reasons["after_collate"] = "num_workers is 0, so that nothing is handed over"
    elif not can.has_collated:
        reasons["after_collate"] = f"a collated batch {_NO_ROOM}"
    if not can.has_samples:
        for name in ("before_collate", "after_augment", "before_augment"):
            reasons[name] = f"a sample {_NO_ROOM}"
    if can.within_sample == ("fetch",):
        why = f"__getitem__ is not cut: {can.fetch_reason}"
        reasons["after_augment"] = reasons["before_augment"] = why
    elif "finish" not in can.within_sample:
        reasons.setdefault("after_augment", "no code follows the augmentation: the same as before_collate")
    return reasons


def build_ladder(can: Capabilities) -> Ladder:
    """List the experiments, the stages and the arms for a pipeline."""
    reasons = _reasons(can)
    rungs = tuple(_rung(name, reasons.get(name), can) for name in stages.EXPERIMENTS)
    there = [rung.name for rung in rungs if rung.reason is None]
    added = {"device": "compute", "host": "copy", "after_collate": "handoff", "before_collate": "collate"}
    added |= {_OUTER_EXPERIMENT[stage]: stage for stage in can.within_sample}
    if not can.has_samples:
        added["raw"] = "fetch"  # collation cannot be told apart without cached samples
    spans = tuple(StageSpan(added[name], inner, name) for inner, name in zip([None, *there[:-1]], there, strict=True))
    without = tuple((span.name, arm) for span in spans if (arm := _without(span.name, can, spans)) is not None)
    return Ladder(rungs, spans, without)


def _rung(name: str, reason: str | None, can: Capabilities) -> Rung:
    if reason is not None:
        return Rung(name, reason)
    if name in ("device", "host"):
        return Rung(name, None, Arm(None, "device" if name == "device" else "host"))
    mode = stages.MODE_OF_EXPERIMENT[name]
    without_handoff = Arm(mode & ~stages.HANDOFF, "loader", coupled=False)
    return Rung(
        name,
        None,
        coupled=Arm(mode, "loader"),
        drained=Arm(mode, "loader", coupled=False),
        workers=without_handoff if can.hands_over and can.has_collated and can.passes_tokens else None,
    )


def _without(stage: str, can: Capabilities, spans: tuple[StageSpan, ...]) -> Arm | None:
    """Return the arm in which everything is real except one stage; None where there is none."""
    if stage == "compute":
        return None
    if stage == "copy":
        return Arm(stages.ALL, "device")
    if stage == "handoff":
        return Arm(stages.ALL & ~stages.HANDOFF, "host") if can.passes_tokens else None
    if stage == "finish" and not can.can_stop:
        return None
    if stage == "collate" and not can.has_collated:
        return None
    if stage == "fetch" and not can.has_samples:
        return _inner_arm(stage, spans, can)
    return Arm(stages.ALL & ~stages.BIT_OF_STAGE[stage], "loader")


def _inner_arm(stage: str, spans: tuple[StageSpan, ...], can: Capabilities) -> Arm | None:
    inner = next(span.inner for span in spans if span.name == stage)
    return _rung(inner, None, can).coupled if inner is not None else None
