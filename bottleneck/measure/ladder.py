"""The experiments of one diagnosis, as arms that can be run.

An *arm* is one way to run the job: which loader stages work, which batch the train step gets, and whether there is a
train step at all. Several experiments of the result can share an arm: `before_augment` is also 'without load'.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from bottleneck.loader import modes
from bottleneck.loader.recording.plan import MarkPlan, Plan
from bottleneck.results.names import FETCH, stages_in
from bottleneck.results.records import Stage

Supply = Literal["device", "host", "loader"]
Preparation = Literal["files dropped"]
"""A state that is made before a block, and used up by it."""


@dataclass(frozen=True)
class Arm:
    """One way to run the job.

    Attributes:
        mode: Loader stages that really work; None if the loader rests.
        supply: Source of the batch for the train step; `device` batches are already there, the others are copied.
        coupled: True with the train step, False for the loader alone.
        preparation: State that is made before each of its blocks; None for that of the job itself.
    """

    mode: int | None
    supply: Supply
    coupled: bool = True
    preparation: Preparation | None = None

    @property
    def queued(self) -> bool:
        """True if blocks begin and end at one level of the prefetch queue, from which the step gets its batches.

        A block with a preparation has no batches to spare for that.
        """
        return self.mode is not None and self.coupled and self.preparation is None


def reads_storage(arm: Arm) -> bool:
    """Return True if an arm really loads."""
    return arm.mode is not None and bool(arm.mode & modes.LOAD)


@dataclass(frozen=True)
class Rung:
    """One experiment of the ladder and the arms that measure it."""

    name: str
    reason: str | None = None
    """Reason why it is not available; None if it is."""
    coupled: Arm | None = None
    drained: Arm | None = None
    workers: Arm | None = None
    """As drained, but nothing is handed over; only if a cost is read from it."""


@dataclass(frozen=True)
class Ladder:
    """The experiments: rungs, the stages between them, and the arms 'without X'."""

    device: ClassVar[Arm] = Arm(None, "device")
    """The upper bound of the throughput."""
    raw: ClassVar[Arm] = Arm(modes.ALL, "loader")
    """The job's real throughput."""
    rungs: tuple[Rung, ...]
    spans: tuple[Stage, ...]
    without: tuple[tuple[str, Arm], ...]
    without_alone: tuple[tuple[str, Arm], ...] = ()
    """Stage -> the workers alone without it, or the loader alone if nothing is handed over."""
    serving: Arm | None = None
    """`raw` of the workers alone, with the replay overhead of the arms without a stage."""

    def named(self) -> Iterator[tuple[str, str, Arm]]:
        """Yield name, mode and arm of every experiment; several may share an arm."""
        for rung in self.rungs:
            for mode, arm in (("coupled", rung.coupled), ("drained", rung.drained), ("workers", rung.workers)):
                if arm is not None:
                    yield rung.name, mode, arm
        for stage, arm in self.without:
            yield stage, "without", arm
        for stage, arm in self.without_alone:
            yield stage, "workers without", arm
        if self.serving is not None:
            yield "raw", "serving", self.serving

    def arms(self) -> tuple[Arm, ...]:
        return tuple(dict.fromkeys(arm for _, _, arm in self.named()))

    def deciding_arms(self) -> tuple[Arm, ...]:
        """Return the arms that decide which stage is the bottleneck: those of the gains if free and of the costs."""
        return tuple(dict.fromkeys((*self.gaining_arms(), *self.cost_arms(), *self.prepared_arms())))

    def prepared_arms(self) -> tuple[Arm, ...]:
        """Return the arms with a preparation: each measures another job than `raw`, for a question of its own."""
        return tuple(arm for arm in self.arms() if arm.preparation is not None)

    def gaining_arms(self) -> tuple[Arm, ...]:
        """Return the arms of the efficiency and of the gains if free, which mostly suffice to name the bottleneck."""
        return tuple(dict.fromkeys((self.device, self.raw, *(arm for _, arm in self.without))))

    def groups(self) -> tuple[tuple[Arm, ...], ...]:
        """Return the groups of arms to visit besides device and raw, most informative first; a group stays together."""
        without = [(arm,) for _, arm in self.without]
        coupled = tuple(rung.coupled for rung in self.rungs if rung.coupled is not None)
        drained = tuple(rung.drained for rung in self.rungs if rung.drained is not None)
        found: list[tuple[Arm, ...]] = []
        seen = {self.device, self.raw}
        for group in (self.cost_arms(), *without, coupled, drained, self.arms()):
            left = tuple(arm for arm in group if arm not in seen)
            seen.update(left)
            if left:
                found.append(left)
        return tuple(found)

    def cost_arms(self) -> tuple[Arm, ...]:
        """Return the arms whose differences are the stages' costs: everything in the workers, and all but one stage.

        Prepared arms are excluded: they measure another job, and the preparation takes time.
        """
        if not self.without_alone:
            return ()
        workers = [rung.workers for rung in self.rungs if rung.workers is not None]
        raw = next(rung for rung in self.rungs if rung.name == "raw")
        everything = [arm for arm in (raw.workers or raw.drained, self.serving) if arm is not None]
        found = dict.fromkeys((*everything, *workers, *(arm for _, arm in self.without_alone)))
        return tuple(arm for arm in found if arm.preparation is None)


@dataclass(frozen=True)
class Capabilities:
    """The measurable parts of a job."""

    not_copied: str
    """Reason why there is no copy to the device; empty if there is one."""
    hands_over: bool
    """True if batches travel between processes, or are pinned."""
    plan: Plan
    can_skip_batches: bool = True
    """True if the loader passes on the workers' results, so that a batch may be left out of them."""
    more_room: str = "--cache-bytes (in Python: cache_bytes)"
    """Option that gives the caches more memory."""
    unrecorded: str = ""
    """Reason why nothing was recorded; empty if something was."""
    collates: bool = True
    """True if batches are made of samples, False if they come whole, as from a generator."""


_NO_ROOM = "does not fit into the memory for caches; allow more: "
_REMEDY = '@bottleneck.stage("name") on a function that it calls makes that function a stage'
_MARKED = "the stages inside __getitem__ are those that you marked"


@dataclass(frozen=True)
class _Step:
    """An experiment in which the loader works, with its real stages and the one that it adds."""

    name: str
    mode: int
    stage: str


def build_ladder(can: Capabilities) -> Ladder:
    """List the experiments, the stages and the arms for a pipeline."""
    reasons = _reasons(can)
    rungs = [
        _rung("device", None, Ladder.device),
        _rung("host", reasons.get("host"), Arm(None, "host")),
    ]
    added = {"device": "compute", "host": "copy"}
    without_room = _without_room(can)
    unsplit: list[str] = []
    for step in _steps(can):
        coupled = Arm(step.mode, "loader")
        # The loader alone, with the hand-off; without one, nothing is done with a batch.
        drained = replace(coupled, coupled=False) if can.hands_over else _alone(coupled, can)
        rungs.append(_rung(step.name, reasons.get(step.name), coupled, drained))
        stage = FETCH if step.name == "raw" and not can.plan.has_samples else step.stage
        added[step.name] = "+".join([*unsplit, stage])
        if step.name not in reasons:
            unsplit = []
        elif step.name in without_room and step.mode and not step.mode & modes.WITHIN_SAMPLE:
            unsplit.append(stage)
    there = [rung.name for rung in rungs if rung.reason is None]
    spans = tuple(
        Stage.between(added[name], inner, name) for inner, name in zip([None, *there[:-1]], there, strict=True)
    )
    inner_arms = {rung.name: rung.coupled for rung in rungs}
    found = [(span.name, _without(span, can, inner_arms)) for span in spans]
    without = tuple((name, arm) for name, arm in found if arm is not None)
    alone = tuple((name, _alone(arm, can)) for name, arm in without if arm.supply == "loader")
    rungs = _with_workers(rungs, spans, frozenset(name for name, _ in alone), can)
    serving = _alone(Arm(modes.ALL | modes.PAY_SERVING, "loader"), can) if can.plan.has_samples else None
    return Ladder(tuple(rungs), spans, without, alone, serving)


def _alone(arm: Arm, can: Capabilities) -> Arm:
    """Return the loader alone in the mode of an arm: its workers alone, if batches need not be handed over."""
    assert arm.mode is not None
    mode = arm.mode & ~modes.HANDOFF if can.can_skip_batches else arm.mode
    return Arm(mode, "loader", coupled=False)


def _with_workers(
    rungs: list[Rung], spans: tuple[Stage, ...], left_out: frozenset[str], can: Capabilities
) -> list[Rung]:
    """Add the workers alone at `raw`, and around each of their stages that cannot be left out separately."""
    if not (can.hands_over and can.can_skip_batches):
        return rungs
    at = {"raw"}
    for span in spans:
        if span.name not in (*left_out, "compute", "copy", "handoff"):
            at.update((span.inner or "", span.outer))
    return [
        replace(rung, workers=_alone(rung.coupled, can))
        if rung.name in at and rung.coupled is not None and rung.coupled.supply == "loader"
        else rung
        for rung in rungs
    ]


def _steps(can: Capabilities) -> list[_Step]:
    marks, mode = can.plan.marks, modes.MODE_OF_EXPERIMENT["before_collate"]
    collating = [_Step("before_collate", mode, "collate")]
    if marks.collate:
        collating = _marked_steps(marks, marks.collate, mode, "collate", "before_collate")
    return [_Step("after_collate", modes.HANDOFF, "handoff"), *collating, *_sample_steps(can)]


def _sample_steps(can: Capabilities) -> list[_Step]:
    if can.plan.marks.sample and can.plan.has_samples:
        names = {f"{side}_{site[1:]}" for site in can.plan.marks.sample for side in ("before", "after")}
        listed = [_Step(name, 0, "") for name in ("after_augment", "before_augment") if name not in names]
        return [*listed, *_marked_steps(can.plan.marks, can.plan.marks.sample, modes.ALL, "other", "raw")]
    stage_of = {"before_augment": "augment", "raw": can.plan.within_sample[-1]}
    steps = [_Step(name, modes.MODE_OF_EXPERIMENT[name], stage) for name, stage in stage_of.items()]
    return [_Step("after_augment", 0, ""), *steps]


def _marked_steps(marks: MarkPlan, sites: tuple[str, ...], mode: int, rest: str, outermost: str) -> list[_Step]:
    """List the steps of marked stages: the code around them first, then from the last one to the first.

    Args:
        sites: The marked stages, in the order of execution.
        mode: Mode in which all of them are real.
        rest: Stage of the code around them.
        outermost: The experiment in which all are real.
    """
    names = [site[1:] for site in sites]
    steps = [_Step(f"after_{names[-1]}", mode | marks.bits(sites), rest)]
    for number in reversed(range(len(sites))):
        name = f"before_{names[number]}" if number else outermost
        steps.append(_Step(name, mode | marks.bits(sites[:number]), names[number]))
    return steps


def _reasons(can: Capabilities) -> dict[str, str]:
    """Return the reasons of the experiments that are not available."""
    reasons: dict[str, str] = {}
    if can.not_copied:
        reasons["host"] = can.not_copied
    if not can.hands_over:
        reasons["after_collate"] = "num_workers is 0, so that nothing is handed over"
    if not can.collates:
        reasons["before_collate"] = "the iterable yields whole batches, so that nothing is collated"
    for name in _without_room(can):
        reasons[name] = (
            can.unrecorded or f"a {'collated batch' if name == 'after_collate' else 'sample'} {_NO_ROOM}{can.more_room}"
        )
    if can.plan.has_samples and can.plan.marks.sample:
        named = {step.name for step in _sample_steps(can) if step.stage}
        reasons |= {name: _MARKED for name in ("after_augment", "before_augment") if name not in named}
        return reasons
    if can.plan.within_sample == ("fetch",) and not can.unrecorded:
        why = f"__getitem__ is not cut: {can.plan.reason}; {_REMEDY}"
        reasons["after_augment"] = reasons["before_augment"] = why
    else:
        reasons.setdefault("after_augment", "the same as before_collate: code after the augmentation is not a stage")
    return reasons


def _without_room(can: Capabilities) -> tuple[str, ...]:
    """Return the experiments for which the caches lack memory; stages that only these separate share a span."""
    if not can.collates:
        return ()
    names = [
        step.name for step in _steps(can) if step.name not in ("after_collate", "raw") and not can.plan.has_samples
    ]
    return tuple(names if can.plan.has_collated or not can.hands_over else ("after_collate", *names))


def _rung(name: str, reason: str | None, coupled: Arm, drained: Arm | None = None) -> Rung:
    return Rung(name, None, coupled, drained) if reason is None else Rung(name, reason)


def _without(span: Stage, can: Capabilities, inner_arms: dict[str, Arm | None]) -> Arm | None:
    """Return the arm in which everything is real except one stage; None if there is none."""
    stage, marks = span.name, can.plan.marks
    if stage == "compute":
        return None
    if stage == "copy":
        return Arm(modes.ALL, "device")
    if stage == "handoff":
        return Arm(modes.ALL & ~modes.HANDOFF, "host") if can.can_skip_batches else None
    if f"@{stage}" in (*marks.sample, *marks.collate):
        return Arm(modes.ALL | marks.bit(f"@{stage}"), "loader")
    if stage == "other":
        return Arm(modes.ALL | modes.SKIP_OTHER, "loader") if marks.sample_alone else None
    if stages_in(stage) == ("handoff", "collate"):
        return Arm(modes.ALL & ~modes.HANDOFF & ~modes.COLLATE, "host") if can.can_skip_batches else None
    if stages_in(stage)[-1] == FETCH and not can.plan.has_samples:
        return inner_arms[span.inner] if span.inner is not None else None
    if stage == "collate" and not can.plan.has_collated:
        return None
    if stage == "collate" and marks.collate:
        return Arm(modes.ALL | modes.SKIP_COLLATE_REST, "loader") if marks.collate_alone else None
    return Arm(modes.ALL & ~modes.BIT_OF_STAGE[stage], "loader")
