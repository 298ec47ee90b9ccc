"""Wall clock of a script: each step of its training, with a part of all that comes between steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bottleneck.analysis.settings import over_0
from bottleneck.results.evidence import BetweenEpochs, Evidence, LoopSeen, OtherLoader, WallClockPart
from bottleneck.results.names import is_cpu
from bottleneck.results.records import Result

if TYPE_CHECKING:  # reports name these parts without numpy
    from bottleneck.analysis.epochs import Epoch

WAITING, STEP = "waiting for batches", "forward, backward and optimizer"
INPUT, AFTER = "input work in the loop", "after the optimizer's step"
OTHERS, SAVING = "other loaders", "checkpoints"
VALIDATION, VALIDATION_WORKERS = "validation", "starting validation workers"
EPOCHS, BETWEEN = "starting epochs", "between epochs"
_NO_STEPS = frozenset((SAVING, VALIDATION, VALIDATION_WORKERS, EPOCHS, BETWEEN))
"""Parts of the wall clock that are in no step of the training."""
_SEVERAL = 2
_MUCH = 0.1
"""Part of the wall clock outside the steps above which a verdict says that it is about the steps alone."""
_BREAKS_COUNT = "loop-breaks-off"
"""The warning that validation is within the steps of the timed blocks."""


def find_wall_clock(measurement: Result, step_s: float, epoch: Epoch | None) -> tuple[WallClockPart, ...]:
    """Return the parts of a script's wall clock that take any time; empty if its loop was not observed.

    The step of the unmodified job divides like the steps of its loop that were seen on ready batches. Waits of the
    host for an asynchronous device belong to the step.

    Args:
        measurement: Measurement of the script.
        step_s: Coupled raw time per batch.
        epoch: A whole epoch, if known.
    """
    evidence, seen = measurement.evidence, measurement.evidence.loop
    steps, evaluated = over_0(seen.steps), evaluations(seen)
    if steps is None or over_0(step_s) is None:
        return ()
    validation_s = sum(one.seconds / one.steps for one in evaluated)
    if any(warning.id == _BREAKS_COUNT for warning in measurement.warnings):
        step_s = max(0.0, step_s - sum(one.seconds / one.steps for one in evaluated if one.in_steps))
    waiting_s = min(step_s, over_0(evidence.wait_s.mean) or 0.0)
    after_s = _after_s(evidence, step_s - waiting_s, on_cpu=is_cpu(measurement.environment.get("device")))
    feeding = [one for one in seen.others if not one.evaluations]
    others_s = sum(known_s(one.starting_s) + known_s(one.waiting_s) for one in feeding) / steps
    # Of a pass that began before the loop was fed, only the waits of its steps are known.
    others_s = min(max(others_s, known_s(seen.other_loaders_s)), step_s - waiting_s - after_s)
    input_s = max(0.0, _watched_share(evidence, seen.input_s) * (step_s - waiting_s) - others_s)
    saving_s = known_s(seen.saving_s) / steps
    saved_s, between_s = _between_s(seen.between)
    workers_s = min(validation_s, sum(one.starting_s / one.steps for one in evaluated))
    found = {
        WAITING: waiting_s,
        INPUT: input_s,
        OTHERS: others_s,
        STEP: max(0.0, step_s - waiting_s - after_s - others_s - input_s),
        AFTER: max(0.0, after_s - saving_s),
        # Where the loop ends its epochs by its own count, that was seen while it was fed.
        SAVING: saving_s or saved_s,
        BETWEEN: between_s,
        VALIDATION: validation_s - workers_s,
        VALIDATION_WORKERS: workers_s,
        EPOCHS: 0.0 if epoch is None else max(0.0, epoch.gap_s.estimate) / epoch.batches,
    }
    whole_s = sum(found.values())
    places = _places(evidence, [one.loader for one in evaluated], feeding)
    return tuple(
        WallClockPart(name=name, s_per_step=seconds, share=seconds / whole_s, place=places.get(name))
        for name, seconds in found.items()
        if seconds > 0
    )


def share_elsewhere(measurement: Result, step_s: float) -> float:
    """Return the share of a script's wall clock that is neither input nor the train step; 0 if it was not observed."""
    parts = find_wall_clock(measurement, step_s, None)
    return sum(known_s(part.share) for part in parts if part.name not in (WAITING, STEP, EPOCHS))


@dataclass(frozen=True)
class Evaluations:
    """Observations of a loader's evaluations."""

    loader: OtherLoader
    count: float
    steps: float
    """Steps of the training over which they were seen."""
    seconds: float
    """Seconds of all evaluations together."""
    starting_s: float
    """Seconds of these spent on starting workers."""
    in_steps: bool
    """They were seen while the loop was fed, and not between two real epochs."""

    @property
    def is_often_known(self) -> bool:
        """True if their frequency is known: once in each epoch, or after some steps, at least twice."""
        return not self.in_steps or self.count >= _SEVERAL


def evaluations(seen: LoopSeen) -> list[Evaluations]:
    """Return the evaluations of loaders by a script: in its steps, or otherwise between its epochs."""
    steps = over_0(seen.steps) or 1.0
    found = [
        Evaluations(one, one.evaluations, steps, known_s(one.evaluating_s), starting_s(one), in_steps=True)
        for one in seen.others
        if one.evaluations
    ]
    known = {_identity(one.loader) for one in found}
    ends, batches = over_0(seen.between.ends), over_0(seen.between.batches)
    for one in seen.between.others:
        if ends and batches and one.evaluations and _identity(one) not in known:
            seconds = max(0.0, known_s(one.evaluating_s) - _once_s(one, ends))
            steps = ends * batches * (one.every or 1)
            found.append(Evaluations(one, one.evaluations, steps, seconds, starting_s(one), in_steps=False))
    return found


def _identity(loader: OtherLoader) -> tuple[object, ...]:
    return loader.dataset, loader.path, loader.line


def _once_s(loader: OtherLoader, ends: float) -> float:
    """Return the seconds that the first pass took to start workers that stay, if there was no other pass."""
    if ends > 1 or not (loader.num_workers and loader.persistent_workers) or is_made_again(loader):
        return 0.0
    return max(0.0, known_s(loader.starting_s) - min(known_s(loader.first_s), _making_s(loader)))


def _between_s(between: BetweenEpochs) -> tuple[float, float]:
    """Return the seconds between two epochs for saving, and for all but saving and evaluating, per training step."""
    ends, batches = over_0(between.ends), over_0(between.batches)
    if ends is None or batches is None:
        return 0.0, 0.0
    share, saving_s = over_0(between.each_epoch_share) or 0.0, known_s(between.saving_s)
    evaluating_s = sum(known_s(one.evaluating_s) for one in between.others) / ends
    rest_s = max(0.0, known_s(between.seconds) - evaluating_s - saving_s)
    return share * saving_s / batches, share * rest_s / batches


def share_of_steps(parts: Sequence[WallClockPart]) -> float | None:
    """Return the part of a script's wall clock spent in training steps; None if unknown."""
    return 1 - sum(known_s(part.share) for part in parts if part.name in _NO_STEPS) if parts else None


def has_much_beside(steps: float | None) -> bool:
    """Return True if much of the wall clock is outside steps, given their part of it."""
    return steps is not None and steps <= 1 - _MUCH


def starting_s(loader: OtherLoader) -> float:
    """Return the seconds for starting a loader's workers in all; 0 if they stay or there are none.

    Without the time in which one worker makes a first batch, which it takes as well where they stay.
    """
    if not loader.num_workers or not (loader.persistent_workers is False or is_made_again(loader)):
        return 0.0
    return max(0.0, known_s(loader.starting_s) - min(known_s(loader.first_s), _making_s(loader)))


def _making_s(loader: OtherLoader) -> float:
    """Return the seconds in which one worker makes the first batches of all passes, by the waits for the others."""
    later = over_0(loader.later_batches)
    return known_s(loader.passes) * known_s(loader.num_workers) * known_s(loader.waiting_s) / later if later else 0.0


def is_made_again(loader: OtherLoader) -> bool:
    """Return True if several loaders were made over its dataset: the workers of each end with it."""
    return (loader.loaders or 0) >= _SEVERAL


def place_of_loader(loader: OtherLoader) -> str | None:
    """Return file and line of the call that made it."""
    return f"{loader.path}:{loader.line}" if loader.path and loader.line is not None else None


def known_s(seconds: float | None) -> float:
    """Return a time; 0 if unknown."""
    return over_0(seconds) or 0.0


def _watched_share(evidence: Evidence, seconds: float | None) -> float:
    """Return the share of steps that were watched outside the timed blocks."""
    whole_s = over_0(evidence.loop.watched_s)
    return 0.0 if whole_s is None else min(1.0, known_s(seconds) / whole_s)


def _after_s(evidence: Evidence, busy_s: float, *, on_cpu: bool) -> float:
    """Return the seconds of the loop after the optimizer's step, with the batch already there.

    What a device that works asynchronously still computes then is the step's, and what it hides costs nothing.
    """
    seen = evidence.loop
    whole_s = sum(map(known_s, (seen.until_optimizer_s, seen.optimizer_s, seen.after_optimizer_s)))
    share = known_s(seen.after_optimizer_s) / whole_s if whole_s else 0.0
    if on_cpu or not share:
        return busy_s * share
    exposed = 1 - max(0.0, known_s(seen.watched_s) - known_s(seen.after_device_s)) / whole_s
    return busy_s * max(0.0, min(share, _watched_share(evidence, seen.after_device_s), exposed))


def _places(evidence: Evidence, evaluating: list[OtherLoader], feeding: list[OtherLoader]) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for name, part in ((INPUT, "input"), (AFTER, "after"), (BETWEEN, "between")):
        lines = (line for line in evidence.loop.lines if line.stage == part and line.path and line.line is not None)
        top = max(lines, key=lambda line: known_s(line.share), default=None)
        found[name] = None if top is None or top.library else f"{top.path}:{top.line}"
    for name, loaders in ((VALIDATION, evaluating), (VALIDATION_WORKERS, evaluating), (OTHERS, feeding)):
        found[name] = place_of_loader(loaders[0]) if len(loaders) == 1 else None
    return found
