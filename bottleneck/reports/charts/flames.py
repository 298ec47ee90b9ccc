"""The flamegraph of a result's page, from the stacks that it keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bottleneck.analysis.advice.kept_stacks import kept_stacks
from bottleneck.reports import numbers
from bottleneck.reports.charts.flamegraph import draw_flamegraph
from bottleneck.results.records import Result

if TYPE_CHECKING:
    from markupsafe import Markup


@dataclass(frozen=True)
class Flamegraph:
    """A flamegraph and what is said beside it."""

    title: str
    note: str
    svg: Markup


def flamegraph(result: Result) -> Flamegraph | None:
    """The flamegraph of all processes together; None where the result keeps no stacks."""
    kept = kept_stacks(result.evidence)
    if kept is None:
        return None
    from markupsafe import Markup

    processes = result.evidence.profile.processes or 0
    title = "Flamegraph of the workers"
    if result.evidence.profile.in_workers is False:
        title = "Flamegraph of the main process, which loads the data"
    together = f" of {numbers.count(processes)} workers together" if processes > 1 else ""
    samples = sum(stack.samples for stack in kept.stacks)
    note = f"{numbers.count(samples)} samples of the loader's code{together}; each function stands on its caller."
    if kept.left_out_share > 0:
        note += f" Rare stacks, {numbers.percent(kept.left_out_share)} of the samples, are left out."
    return Flamegraph(title, note, Markup(draw_flamegraph(kept.stacks, title)))
