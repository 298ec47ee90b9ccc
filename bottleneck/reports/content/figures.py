"""The drawings of a page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from bottleneck.analysis.advice.kept_stacks import kept_stacks
from bottleneck.reports.charts.charts import block_chart, draw_charts
from bottleneck.reports.charts.flamegraph import draw_flamegraph
from bottleneck.reports.charts.shapes import Chart
from bottleneck.reports.charts.steps import step_chart
from bottleneck.reports.charts.timeline import draw_timeline
from bottleneck.reports.document import Figure, Paragraph, Section
from bottleneck.results.format import percent, whole
from bottleneck.results.records import Result


def charts(result: Result) -> Iterator[Section]:
    """What was found: ladder, one step, gains."""
    for chart in draw_charts(result):
        yield from _section(chart)


def steps(result: Result) -> Iterator[Section]:
    """Single steps of the job."""
    return _section(step_chart(result))


def blocks(result: Result) -> Iterator[Section]:
    """Every block."""
    return _section(block_chart(result))


def timeline(result: Result) -> Iterator[Section]:
    """Utilisation over time."""
    return _section(draw_timeline(result), "timeline")


def _section(chart: Chart | None, kind: Literal["chart", "timeline"] = "chart") -> Iterator[Section]:
    if chart is not None:
        yield Section(chart.title, (Figure(kind, chart), Paragraph(chart.note, "note")))


def flamegraph(result: Result) -> Iterator[Section]:
    """What the loader's code does, all processes together."""
    kept = kept_stacks(result.evidence)
    if kept is None:
        return
    profile = result.evidence.profile
    main = profile.in_workers is False
    title = "Flamegraph of the main process, which loads the data" if main else "Flamegraph of the workers"
    stages = [stage.name for stage in result.stages]
    processes = profile.processes or 0
    together = f" of {whole(processes)} workers together" if processes > 1 else ""
    samples = sum(stack.samples for stack in kept.stacks)
    note = f"{whole(samples)} samples of the loader's code{together}; each function stands on its caller."
    if kept.left_out_share > 0:
        note += f" Rare stacks, {percent(kept.left_out_share)} of the samples, are left out."
    yield Section(title, (Paragraph(note, "note"), Figure("flamegraph", draw_flamegraph(kept.stacks, title, stages))))
