"""The answer, what to think of it, and what it took."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bottleneck.analysis.gains import step_s
from bottleneck.analysis.ranks import straggler_sentence, sync_sentence
from bottleneck.reports import sanitize
from bottleneck.reports.content.advice import left_out_of_short
from bottleneck.reports.content.job import a_rank, job_facts, job_name, on_cpu, rate_unit, standing
from bottleneck.reports.content.price import lost_money
from bottleneck.reports.content.step import takes
from bottleneck.reports.document import PAGES, Items, Paragraph, Section
from bottleneck.results.format import (
    count,
    known,
    long_duration,
    names,
    percent_interval,
    plural,
    size,
    whole,
)
from bottleneck.results.names import COMPUTE, DEVICE, RAW, SYNC
from bottleneck.results.records import Interval, Result

STATES = {
    "input_bound": "INPUT-BOUND", "sync_bound": "SYNC-BOUND", "device_bound": "COMPUTE-BOUND", "undecided": "UNDECIDED",
}  # fmt: skip
MOST_WARNINGS = 2
"""In a short report; the others are counted."""
MOST_ALERTS = 3
"""In a pull request; the others are in a fold."""


def sentences(result: Result) -> list[str]:
    """The lines of the verdict, at least one: the answer, then what it is worth, also in money where it has a price."""
    lines = [line for line in sanitize.lines(result.verdict.sentence) if line.strip()] or ["There is no verdict."]
    return [*lines, *filter(None, [lost_money(result)])]


def headline(result: Result) -> list[str]:
    """The answer in short: a rank that holds all others, throughput and what is possible, what takes the time, money.

    What is not as simple as that, such as a job whose epochs begin slowly, is told in the words of the verdict.
    """
    verdict = result.verdict
    rates = [_samples_per_s(result, name) for name in (RAW, DEVICE)]
    simple = verdict.state != "undecided" and verdict.judged_by == "efficiency" and verdict.bottleneck
    if not simple or verdict.efficiency is None or step_s(result) is None or None in rates:
        return sentences(result)
    held = straggler_sentence(result.evidence.ranks)
    lines = [held, _throughput(result, rates[0] or 0.0, rates[1] or 0.0, verdict.efficiency), _bottleneck(result)]
    return [*filter(None, [*lines, lost_money(result)])]


def _throughput(result: Result, now: float, most: float, efficiency: Interval) -> str:
    speed = f"{count(now)} {rate_unit(result)}{a_rank(result)}"
    if on_cpu(result):
        return f"{speed}. It trains on the CPU, where model and workers share the cores."
    lost = percent_interval(
        Interval(*(max(0.0, 1 - share) for share in (efficiency.estimate, efficiency.high, efficiency.low)))
    )
    possible = f"{count(max(now, most))} if data came at once: the input costs {lost}."
    return f"{speed} now, {possible}"


def _bottleneck(result: Result) -> str:
    """What takes most of the time, and how much of it."""
    named = result.verdict.bottleneck or ""
    taken, shared = takes(result, named), sync_sentence(result.evidence.ranks)
    if named == SYNC:
        return f"Bottleneck: sync. {shared}"
    if named == COMPUTE:
        return f"The train step takes {taken or 'the time'}: make that faster, and leave the input as it is."
    also = f" Also: {names(result.verdict.contributors)}." if result.verdict.contributors else ""
    return f"Bottleneck: {named}{f', {taken}' if taken else ''}.{also} {shared}".rstrip()


def _samples_per_s(result: Result, name: str) -> float | None:
    rate = next((e.coupled for e in result.experiments if e.name == name and e.available), None)
    return rate.samples_per_s if rate is not None and known(rate.samples_per_s) else None


def short_answer(result: Result) -> Iterator[Section]:
    """State and job in one line, and the answer."""
    state = STATES[standing(result)]
    job = Paragraph(f"{state}  {job_name(result)}", "state")
    facts = Paragraph(", ".join(job_facts(result)), "note")
    yield Section("", (job, facts, *map(Paragraph, headline(result))), folded=False)


def page_answer(result: Result) -> Iterator[Section]:
    """State and job, and the verdict in full; both efficiencies where it goes by the one over a whole epoch."""
    job = Paragraph(f"{STATES[standing(result)]}  {job_name(result)}", "state")
    answer, *rest = headline(result) if on_cpu(result) else [*sentences(result), *_efficiencies(result)]
    facts = Paragraph(", ".join(job_facts(result)), "note")
    yield Section("", (job, Paragraph(answer, "answer"), *map(Paragraph, rest), facts), folded=False)


def _efficiencies(result: Result) -> Iterator[str]:
    verdict = result.verdict
    if verdict.judged_by == "epoch_efficiency":
        within, over = percent_interval(verdict.efficiency), percent_interval(verdict.epoch_efficiency)
        yield f"Efficiency: {within} within an epoch, {over} over a whole one."


def pull_request_answer(result: Result) -> Iterator[Section]:
    """A heading that tells this job from others, and the answer."""
    name = job_name(result)
    heading = Paragraph(f"{_HEADINGS[standing(result)].format(job=name)}", "heading")
    facts = Paragraph(", ".join(job_facts(result)), "small")
    yield Section("", (heading, facts, *map(Paragraph, headline(result))), folded=False)


_HEADINGS = {
    "input_bound": "🔴 {job} waits for its data",
    "sync_bound": "🔴 {job} waits for its gradients",
    "device_bound": "🟢 {job} keeps its device busy",
    "undecided": "⚪ {job}: undecided",
}


def warnings(result: Result) -> Iterator[Section]:
    """Why not to trust a number."""
    yield Section("Warnings", (_alerts([w.message for w in result.warnings]),), folded=False)


def alerts(result: Result) -> Iterator[Section]:
    """The first of them, which are seen without a click."""
    yield Section("Warnings", (_alerts([w.message for w in result.warnings[:MOST_ALERTS]]),), folded=False)


def further_warnings(result: Result) -> Iterator[Section]:
    """What pull requests have no room for."""
    yield Section("Further warnings", (_alerts([w.message for w in result.warnings[MOST_ALERTS:]]),))


def first_warnings(result: Result) -> Iterator[Section]:
    """The first of them."""
    yield Section("Warnings", (_alerts([w.message for w in result.warnings[:MOST_WARNINGS]]),), folded=False)


def _alerts(messages: Sequence[str]) -> Items:
    return Items(tuple(messages), "Warning", warn=True)


def cost(result: Result) -> Iterator[Section]:
    """What the diagnosis took; on a page also by which version and when."""
    spent = result.cost
    took = (
        f"Measured in {long_duration(spent.seconds)}: {whole(spent.batches)} batches, {whole(spent.samples)} samples, "
        f"{size(spent.cache_bytes)} of caches."
    )
    whence = f"{took} {result.tool.name} {result.tool.version}, {result.created}"
    yield Section("", (Paragraph(took, "small", on=("verbose",)), Paragraph(whence, "small", on=PAGES)), folded=False)


def where_more_is(result: Result) -> Iterator[Section]:
    """The last line of a short report: what it took, and what is left out."""
    took = f"Measured in {long_duration(result.cost.seconds)}, {plural(_rounds(result), 'round')}."
    left_out = list(_left_out(result))
    more = ", ".join([*left_out, "tables and intervals"]) if left_out else "All tables and intervals"
    yield Section("", (Paragraph(f"{took} {more}: --verbose.", "small"),), folded=False)


def _left_out(result: Result) -> Iterator[str]:
    fixes, warned = left_out_of_short(result), len(result.warnings[MOST_WARNINGS:])
    if fixes:
        yield f"{whole(fixes)} more {'fix' if fixes == 1 else 'fixes'}"
    if warned:
        yield plural(warned, "more warning")


def _rounds(result: Result) -> int:
    raw = next((e.coupled for e in result.experiments if e.name == RAW), None)
    return len({block.round for block in raw.blocks}) if raw is not None else 0
