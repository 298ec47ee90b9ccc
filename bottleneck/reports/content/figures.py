"""The drawings of a page."""

from __future__ import annotations

from collections.abc import Iterator

from bottleneck.analysis.advice.kept_stacks import kept_stacks
from bottleneck.reports.charts.blocks import plot_blocks
from bottleneck.reports.charts.flamegraph import draw_flamegraph
from bottleneck.reports.document import Figure, Paragraph, Section
from bottleneck.results.format import percent, whole
from bottleneck.results.records import Result


def blocks(result: Result) -> Iterator[Section]:
    """Every block."""
    plot = plot_blocks(result)
    if plot is not None:
        yield Section(plot.title, (Figure("blocks", plot), Paragraph(plot.note, "note")))


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
