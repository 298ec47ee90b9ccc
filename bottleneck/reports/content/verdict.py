"""The answer, what to think of it, and what it took."""

from __future__ import annotations

from collections.abc import Iterator

from bottleneck.reports import sanitize
from bottleneck.reports.content.price import lost_money
from bottleneck.reports.document import PAGES, Items, Paragraph, Section
from bottleneck.results.format import UNKNOWN, long_duration, percent_interval, plural, size, whole
from bottleneck.results.records import Result


def sentences(result: Result) -> list[str]:
    """The lines of the verdict, at least one: the answer, then what it is worth, also in money where it has a price."""
    lines = [line for line in sanitize.lines(result.verdict.sentence) if line.strip()] or ["There is no verdict."]
    return [*lines, *filter(None, [lost_money(result)])]


def answer(result: Result) -> Iterator[Section]:
    """The verdict."""
    first, *details = sentences(result)
    verdict = result.verdict
    efficiency = f"Efficiency: {percent_interval(verdict.efficiency)}"
    if verdict.judged_by == "epoch_efficiency":
        efficiency += f" within an epoch, {percent_interval(verdict.epoch_efficiency)} over a whole one"
    state = f"State: {verdict.state.replace('_', ' ')}. Bottleneck: {verdict.bottleneck or UNKNOWN}. {efficiency}."
    yield Section(
        "",
        (Paragraph(first, "answer"), *map(Paragraph, details), Paragraph(state, "note", on=("html",))),
        folded=False,
    )


def warnings(result: Result) -> Iterator[Section]:
    """Why not to trust a number."""
    yield Section("Warnings", (Items(tuple(w.message for w in result.warnings), "Warning", warn=True),))


def count_of_warnings(result: Result) -> Iterator[Section]:
    """A hint for those who do not open the warnings."""
    if result.warnings:
        hint = f"{plural(len(result.warnings), 'warning')} below: read before trusting a number."
        yield Section("", (Paragraph(hint),), folded=False)


def cost(result: Result) -> Iterator[Section]:
    """What the diagnosis took; on a page also by which version and when."""
    spent = result.cost
    took = (
        f"Measured in {long_duration(spent.seconds)}: {whole(spent.batches)} batches, {whole(spent.samples)} samples, "
        f"{size(spent.cache_bytes)} of caches."
    )
    whence = f"{took} {result.tool.name} {result.tool.version}, {result.created}"
    yield Section("", (Paragraph(took, "small", on=("text",)), Paragraph(whence, "small", on=PAGES)), folded=False)
