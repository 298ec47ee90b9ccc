"""Objects that are made again for each sample, or batch, with the same arguments: such as clients with a handshake."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath

from bottleneck.analysis.advice.case import WORTH_NAMING, Case, Suggestion, rule
from bottleneck.analysis.edits.edits import CONSTRUCTION
from bottleneck.analysis.settings import over_0
from bottleneck.results.evidence import AmplifiedSeen, ConstructionSeen
from bottleneck.results.format import percent, plural
from bottleneck.results.names import COLLATE, stages_in
from bottleneck.results.records import Stage

_EACH_TIME, _SAME_FILES = 0.75, 0.75
"""Opens per sample, and different files per open, above and below which handles are worth keeping."""
_RARELY = 0.5
"""Its part of the samples over its share of the time, below which few samples make the object, each for long."""
_ASSIGNED = re.compile(r"^(?:with\s+)?(?:self\.)?(\w+)\s*=(?!=)\s*(.+)$")


def is_opened_each_time(seen: AmplifiedSeen) -> bool:
    """Return True if the same files are opened for most samples."""
    samples, opens, files = over_0(seen.samples), over_0(seen.opens), over_0(seen.opened_files)
    return bool(samples and opens and files and opens >= _EACH_TIME * samples and files <= _SAME_FILES * opens)


def construction_in(case: Case, stage: Stage) -> ConstructionSeen | None:
    """Return what most samples make again with the same arguments, if that takes much of a stage; else None.

    Files that are opened again are left to the advice that knows what is read of them.
    """
    if any(is_opened_each_time(seen) for seen in case.evidence.amplification if seen.stage == stage.name):
        return None
    found = (seen for seen in case.evidence.constructions if seen.stage == stage.name and _is_for_most(seen))
    return next((seen for seen in found if seen.name and seen.path and seen.line is not None), None)


def _is_for_most(seen: ConstructionSeen) -> bool:
    share, times, of = over_0(seen.share), over_0(seen.seen), over_0(seen.looked_at)
    return bool(share and times and of and share >= WORTH_NAMING and times >= _RARELY * share * of)


@rule(CONSTRUCTION)
def _made_again(case: Case) -> Iterator[Suggestion]:
    """Advise to make an object once in each worker that each sample makes again."""
    for stage in case.may_gain:
        seen = construction_in(case, stage)
        if seen is None:
            continue
        share, unit = min(1.0, over_0(seen.share) or 0.0), _unit(case, stage)
        once, name = "in each worker" if case.workers else "before the loop", str(seen.name)
        yield Suggestion(
            stage=stage.name,
            title=f"{name} is made again for each {unit} (line {seen.line}): make it once {once}",
            why=f"Line {seen.line} of {PurePath(str(seen.path)).name} makes it with the same arguments each time: at "
            f"work in {seen.seen} of {plural(seen.looked_at or 0, unit)} looked at. That takes {percent(share)} of "
            f"{stage.name}. The gain assumes that it takes no time.{case.doubt}",
            how=_keep(seen),
            evidence={
                "path": seen.path,
                "line": seen.line,
                "name": name,
                "share": share,
                "seen": seen.seen,
                "looked_at": seen.looked_at,
                "gain": case.gain_of(stage),
            },
            gain=case.gain_of_part(stage, share),
            cause=True,
        )


def _unit(case: Case, stage: Stage) -> str:
    of_batches = case.evidence.loader.fetches_batches or COLLATE in stages_in(stage.name)
    return "batch" if of_batches else "sample"


def _keep(seen: ConstructionSeen) -> str:
    """Return how to keep the object, in the words of the line that makes it."""
    assigned = _ASSIGNED.match(seen.code or "")
    kept = assigned[1] if assigned else "kept"
    call = assigned[2] if assigned else f"{seen.name}(...)"
    return (
        f"in __init__: self.{kept} = None; where it is used: if self.{kept} is None: self.{kept} = {call}, so that "
        "each worker makes its own; or make it in a function with @functools.lru_cache"
    )


RULES = (_made_again,)
