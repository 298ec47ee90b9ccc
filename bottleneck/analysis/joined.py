"""Evidence of stages that are measured as one by now: its rows go by the stage that is left.

What was seen of `augment` and `load` stays true where a cut between them is lost later, and both become `fetch`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from bottleneck.analysis.settings import over_0
from bottleneck.results.evidence import Evidence
from bottleneck.results.names import AUGMENT, FETCH, LOAD, span_of
from bottleneck.results.records import Result

_OF_CUTS = ("cut-changes-its-argument", "lazy-values", "rest-counts-as-load")
"""Ids of warnings on the attribution of time to stages within a sample."""


@dataclass(frozen=True)
class _Names:
    """The stages that are left."""

    left: tuple[str, ...]
    clocks_s: Mapping[str, float]
    """Seconds per batch of a worker, of the stages that were observed."""

    def now(self, stage: str | None) -> str | None:
        return stage if stage is None or not self.left else span_of(stage, self.left)

    def share(self, share: float | None, stage: str | None) -> float | None:
        """Return a share of a stage as a share of the remaining stage; None if the stage's time is unknown."""
        left = self.now(stage)
        if share is None or stage == left:
            return share
        whole_s = sum(seconds for name, seconds in self.clocks_s.items() if self.now(name) == left)
        return share * self.clocks_s.get(stage or "", 0.0) / whole_s if whole_s else None


def with_stages_left(measurement: Result) -> Result:
    """Return a measurement whose evidence and warnings refer to the remaining stages."""
    clocked = measurement.evidence.clocked_batches.stages
    clocks_s = {one.stage: one.seconds_each for one in clocked if one.stage and over_0(one.seconds_each)}
    names = _Names(tuple(stage.name for stage in measurement.stages), clocks_s)  # type: ignore[arg-type]
    gone = {AUGMENT, LOAD} - set(names.left) if FETCH in names.left else set()
    if not gone:
        return measurement
    warnings = tuple(
        warning
        for warning in measurement.warnings
        if warning.id not in _OF_CUTS or not any(f"`{stage}`" in warning.message for stage in gone)
    )
    return replace(measurement, evidence=_renamed(measurement.evidence, names), warnings=warnings)


def _renamed(evidence: Evidence, names: _Names) -> Evidence:
    lines = [
        replace(one, stage=names.now(one.stage), share=names.share(one.share, one.stage)) for one in evidence.lines
    ]
    return replace(
        evidence,
        lines=tuple(sorted(lines, key=lambda line: -(line.share or 0.0))),
        amplification=tuple(
            replace(
                one,
                stage=names.now(one.stage),
                share=names.share(one.share, one.stage),
                opening_share=names.share(one.opening_share, one.stage),
            )
            for one in evidence.amplification
        ),
        transforms=tuple(
            replace(one, stage=names.now(one.stage), share=names.share(one.share, one.stage))
            for one in evidence.transforms
        ),
        repeated=replace(evidence.repeated, stages=tuple(_all_of(evidence.repeated.stages, names))),
        profile=replace(
            evidence.profile,
            functions=tuple(replace(one, stage=names.now(one.stage)) for one in evidence.profile.functions),
        ),
    )


def _all_of(stages: Sequence[str], names: _Names) -> Iterator[str]:
    """Yield the stages that are left of which all parts are among some."""
    for left in dict.fromkeys(map(names.now, stages)):
        parts = {stage for stage in names.clocks_s if names.now(stage) == left} or {AUGMENT, LOAD}
        if left is not None and (left in stages or parts <= set(stages)):
            yield left
