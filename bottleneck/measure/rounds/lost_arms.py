"""Experiments that cannot be measured after all, because the job's code raised on recorded data, and only then.

Code behind a cut may combine data loaded for one item with data recorded for another. That costs the experiment in
which it shows, with its blocks, and nothing else.
"""

from __future__ import annotations

from dataclasses import replace

from bottleneck.loader import modes
from bottleneck.loader.control import Fault
from bottleneck.loader.switched import SwitchedLoader
from bottleneck.measure.evidence.io import StorageReads
from bottleneck.measure.explain_errors import loader_failures
from bottleneck.measure.ladder import Arm, Ladder, Rung
from bottleneck.measure.ledger import Ledger
from bottleneck.results.records import Stage
from bottleneck.results.warnings.cuts import experiment_lost, items_served_again, recording_changed


class LostArms:
    """Removes the experiments from the ladder that the workers could not serve."""

    def __init__(self, loader: SwitchedLoader, ledger: Ledger, reads: StorageReads) -> None:
        self._loader = loader
        self._ledger = ledger
        self._reads = reads

    def left_of(self, ladder: Ladder) -> Ladder:
        """Return the ladder without lost experiments; to be called after each visit."""
        for fault in self._loader.new_faults():
            if self._can_use_own_items(ladder, fault):
                ladder = self._with_own_items(ladder, fault)
            elif names := _names(ladder, fault.mode):
                for name in names:
                    self._ledger.warn(experiment_lost(name, _explain(fault)))
                ladder = without_mode(ladder, fault.mode, _explain(fault))
        return ladder

    def warn_of_changes(self) -> None:
        """Warn of recorded data that changed while it was served; to be called once everything is measured."""
        with loader_failures("after_collate"):
            changed = self._loader.changed_recordings()
        if changed:
            self._ledger.warn(recording_changed(changed))

    def _can_use_own_items(self, ladder: Ladder, fault: Fault) -> bool:
        """Return True if marked stages can be served repeatedly to the items that they were recorded of.

        The reads of the code around them come from the page cache then, so this needs a job that reads from there.
        """
        marked = bool(fault.mode & modes.MARK_BITS) and not fault.mode & modes.OWN_ITEMS
        reads_memory = self._reads.source(ladder.raw) in ("page cache", "none")
        return marked and not self._loader.iterable and reads_memory

    def _with_own_items(self, ladder: Ladder, fault: Fault) -> Ladder:
        """Replace the arms of a mode; their measurements no longer count."""
        names = _names(ladder, fault.mode)
        if names:
            self._ledger.warn(items_served_again(names, _explain(fault)))

        def other(arm: Arm | None) -> Arm | None:
            serves = arm is not None and _serves(arm, fault.mode)
            return replace(arm, mode=(arm.mode or 0) | modes.OWN_ITEMS) if arm is not None and serves else arm

        rungs = tuple(
            replace(rung, coupled=other(rung.coupled), drained=other(rung.drained), workers=other(rung.workers))
            for rung in ladder.rungs
        )
        without, alone = (
            tuple((stage, other(arm) or arm) for stage, arm in arms) for arms in (ladder.without, ladder.without_alone)
        )
        return replace(ladder, rungs=rungs, without=without, without_alone=alone)


def _names(ladder: Ladder, mode: int) -> list[str]:
    names = [rung.name for rung in ladder.rungs if _serves(rung.coupled, mode)]
    return names + [f"without {stage}" for stage, arm in ladder.without if _serves(arm, mode)]


def _explain(fault: Fault) -> str:
    return (
        f"the job's code raised {' '.join(fault.error.split())} on recorded data, but not when everything is real. It "
        "may combine data of different samples, keep something between calls, or change its inputs in place."
    )


def _serves(arm: Arm | None, mode: int) -> bool:
    """Return True if an arm serves the recordings of a mode, no matter if the batch is then handed over."""
    return arm is not None and arm.mode is not None and (arm.mode ^ mode) & ~modes.HANDOFF == 0


def without_mode(ladder: Ladder, mode: int, reason: str) -> Ladder:
    """Return a ladder without the experiments of a mode; stages that can no longer be separated become one."""
    lost = {rung.name for rung in ladder.rungs if _serves(rung.coupled, mode)}
    rungs = tuple(Rung(rung.name, reason) if rung.name in lost else rung for rung in ladder.rungs)
    coupled = {rung.name: rung.coupled for rung in rungs}
    without = {stage: arm for stage, arm in ladder.without if not _serves(arm, mode)}
    spans: list[Stage] = []
    open_: Stage | None = None
    for span in ladder.spans:
        joined = span if open_ is None else _join(open_, span)
        open_ = joined if span.outer in lost else None
        if open_ is not None:
            continue
        spans.append(joined)
        inner = coupled.get(joined.inner or "")
        if joined is not span and joined.outer == "raw" and inner is not None:
            without[joined.name] = inner  # everything else is real there
    names = [span.name for span in spans]
    return replace(
        ladder,
        rungs=rungs,
        spans=tuple(spans),
        without=tuple((name, without[name]) for name in names if name in without),
        without_alone=tuple(
            (name, arm) for name, arm in ladder.without_alone if name in names and not _serves(arm, mode)
        ),
        serving=None if _serves(ladder.serving, mode) else ladder.serving,
    )


def _join(inner: Stage, outer: Stage) -> Stage:
    name = f"{inner.name}+{outer.name}"
    return replace(
        outer,
        name="fetch" if name == "augment+load" else name,
        inner=inner.inner,
        wall_s_per_batch=_sum(inner.wall_s_per_batch, outer.wall_s_per_batch),
        cpu_s_per_batch=_sum(inner.cpu_s_per_batch, outer.cpu_s_per_batch),
    )


def _sum(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a + b
