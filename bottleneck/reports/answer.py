"""The job of a report, the answer, warnings, and the cost of measuring."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeGuard

from bottleneck.analysis import settings
from bottleneck.analysis.advice.wall_clock import has_much_beside, share_of_steps
from bottleneck.analysis.parts import is_sure
from bottleneck.analysis.ranks import straggler_of, straggler_sentence, sync_sentence
from bottleneck.reports import sanitize
from bottleneck.reports.advice import left_out_of_short
from bottleneck.reports.document import PAGES, Items, Paragraph, Section
from bottleneck.reports.inside import unseen_in_words, wall_clock_in_words
from bottleneck.reports.starting import starting_in_words
from bottleneck.results.format import (
    at_most,
    count,
    duration,
    duration_interval,
    gain_interval,
    known,
    long_duration,
    names,
    number,
    percent,
    percent_interval,
    plural,
    size,
    whole,
)
from bottleneck.results.names import COMPUTE, DEVICE, RAW, SYNC, is_cpu
from bottleneck.results.plan import PlanResult
from bottleneck.results.records import Result, State, StepPart, blocks_of
from bottleneck.results.tuning import TuningResult

Measured = Result | TuningResult | PlanResult
"""A record that names its job and machine."""


def job_name(result: Measured) -> str:
    """Return the target as typed; else the model and its data, all that is known of a call from Python."""
    target, model, dataset = (_text(result.pipeline, key) for key in ("target", "model", "dataset"))
    if target:
        return target
    return " on ".join(filter(None, (model, dataset.rpartition(".")[2]))) or "this job"


def job_facts(result: Measured) -> str:
    """Return commit, device, batch and workers, if known."""
    return ", ".join(_facts(result))


def _facts(result: Measured) -> Iterator[str]:
    commit = _text(result.pipeline, "commit")
    if commit:
        yield f"commit {commit}"
    device = _text(result.environment, "device_name") or _text(result.environment, "device")
    if ranks := ranks_in_words(result):
        yield ranks
    if device:
        yield f"{device} (CPU)" if on_cpu(result) and device != "cpu" else device.replace("cpu", "CPU")
    batch, workers = result.pipeline.get("batch_size"), result.pipeline.get("num_workers")
    if _is_number(batch):
        yield f"batch {number(batch)}"
    if _is_number(workers):
        yield f"{number(workers)} worker{'' if workers == 1 else 's'}"


def ranks_in_words(result: Measured) -> str:
    """Return the number of ranks, in words; empty for a job of one process."""
    measured = result.before if isinstance(result, TuningResult) else result
    together = measured.evidence.ranks if isinstance(measured, Result) else None
    if together is None or (together.world or 0) < 2:
        return ""
    hosts = f" on {plural(together.hosts, 'host')}" if together.hosts else ""
    return f"{whole(together.world)} ranks{hosts}"


def standing(result: Result) -> Literal[State, "sync_bound"]:
    """Return the state; if neither input nor device limits the job, that of sharing gradients."""
    verdict = result.verdict
    return "sync_bound" if verdict.state == "device_bound" and verdict.bottleneck == SYNC else verdict.state


def rate_unit(result: Measured) -> str:
    """Return the unit of the job's throughput: `samples/s`, or `batches/s` if their size is unknown."""
    if isinstance(result, PlanResult):
        return result.rate_unit
    if isinstance(result, Result):
        return settings.unit_of(result)
    return settings.rate_unit(result.pipeline, result.ladder[0].rate.blocks if result.ladder else (), result.before)


def on_cpu(result: Measured) -> bool:
    """Return True if the train step is known to run on the same cores as the workers."""
    return is_cpu(result.environment.get("device"))


def _text(part: Mapping[str, Any], key: str) -> str:
    value = part.get(key)
    return value if isinstance(value, str) else ""


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and known(value)


# --- the answer ------------------------------------------------------------------------------------------

STATES = {
    "input_bound": "INPUT-BOUND",
    "sync_bound": "SYNC-BOUND",
    "device_bound": "COMPUTE-BOUND",
    "undecided": "UNDECIDED",
}
MAX_WARNINGS = 2
"""In a short report; the others are counted."""
MAX_ALERTS = 3
"""In a pull request; the others are in a fold."""


def sentences(result: Result) -> list[str]:
    """Return the lines of the verdict, at least one: the answer, then its value, also in money if there is a price."""
    lines = [line for line in sanitize.lines(result.verdict.sentence) if line.strip()] or ["There is no verdict."]
    return [*lines, *filter(None, [lost_money(result)])]


def headline(result: Result) -> list[str]:
    """Return the answer in short: a straggler, throughput and its limit, the bottleneck, money.

    Less simple cases, such as a job whose epochs start slowly, are given in the words of the verdict.
    """
    verdict, now, most = result.verdict, result.coupled(RAW), result.verdict.upper_bound or result.coupled(DEVICE)
    simple = verdict.state != "undecided" and verdict.judged_by == "efficiency" and verdict.bottleneck
    if not simple or verdict.loss is None or now is None or most is None:
        return sentences(result)
    speed = f"{count(now.samples_per_s)} {rate_unit(result)}{' a rank' if ranks_in_words(result) else ''} now, "
    speed += f"{count(max(now.samples_per_s, most.samples_per_s))} if "
    costs = percent_interval(verdict.loss)
    if not on_cpu(result):
        told = [f"{speed}data came at once: the input costs {costs}.", _bottleneck(result)]
    elif result.pipeline.get("num_workers") == 0:
        told = [_bottleneck(result), f"{speed}the input took no time: it costs {costs}."]
    else:
        shared = "on the CPU, which model and workers share"
        told = [_bottleneck(result), f"{speed}the input took no time and no core: it costs {costs} {shared}."]
    return [*filter(None, [straggler_sentence(result.evidence.ranks), *told, lost_money(result)])]


def _in_one_line(result: Result) -> str:
    """Return the answer as a heading: the state, and the bottleneck or else the cost of the input."""
    verdict, raw = result.verdict, result.coupled(RAW)
    state = STATES[standing(result)].capitalize()
    named = next((part for part in result.step if part.name == verdict.bottleneck != COMPUTE), None)
    if named is not None and raw is not None and verdict.judged_by == "efficiency":
        gain = next((stage.possible_gain for stage in result.stages if stage.name == named.name), None)
        free = f"; without it {gain_interval(gain)}" if gain is not None and is_sure(gain) else ""
        part = f"{duration(named.s_per_batch)} of each {duration(raw.seconds_per_batch)}"
        return f"{state}: {named.name} takes {part}{free}."
    if verdict.loss is None:
        return f"{state}."
    over = " over a whole epoch" if verdict.judged_by == "epoch_efficiency" else ""
    return f"{state}: the input costs {percent_interval(verdict.loss)} of the throughput{over}."


def _answer(result: Result) -> list[str]:
    """Return the answer in short, and the part of the wall clock outside input and train step."""
    return [*headline(result), *filter(None, (_unnamed_cost(result), *_beside_steps(result)))]


def _unnamed_cost(result: Result) -> str:
    """Return the cost of an input without a named stage on the CPU, where the sentence has none; else nothing."""
    verdict = result.verdict
    if verdict.state != "input_bound" or verdict.bottleneck or verdict.loss is None or not on_cpu(result):
        return ""
    over = " over a whole epoch" if verdict.judged_by == "epoch_efficiency" else ""
    return f"The input costs {percent_interval(verdict.loss)} of the throughput{over}."


def _beside_steps(result: Result) -> tuple[str, str, str]:
    return wall_clock_in_words(result), starting_in_words(result), unseen_in_words(result)


def _bottleneck(result: Result) -> str:
    """Return the part that takes most of the time, and its share."""
    named = result.verdict.bottleneck or ""
    taken, shared = takes(result, named), sync_sentence(result.evidence.ranks)
    if named == SYNC:
        return f"Bottleneck: sync. {shared}"
    if named == COMPUTE:
        found = f"The train step takes {taken or 'the time'}: make that faster, and leave the input alone."
        steps = share_of_steps(result.evidence.wall_clock)
        return f"{found} But steps are only {percent(steps)} of the wall clock." if has_much_beside(steps) else found
    also = f" Also: {names(result.verdict.contributors)}." if result.verdict.contributors else ""
    return f"Bottleneck: {named}{f', {taken}' if taken else ''}.{also} {shared}".rstrip()


def takes(result: Result, name: str) -> str:
    """Return a stage's time, and of what; empty if it has no separate number.

    On a CPU it is a part of what the loader alone takes: a step says little there of a stage, because the workers and
    the train step slow each other down. Where another rank is the slow one, it is not its loader that was measured.
    """
    raw, alone = result.coupled(RAW), result.loader_alone
    if not on_cpu(result) or name == COMPUTE:
        # Of a rank that waits for others, the train step has the sharing of gradients in it.
        found = [part for part in result.step if part.name == name or (name == COMPUTE and part.name == SYNC)]
        if raw is None or not found or found[0].at_most_s is not None:
            return ""
        took_s = sum(part.s_per_batch for part in found)
        return f"{duration(took_s)} of each {duration(raw.seconds_per_batch)} step"
    held = straggler_of(result.evidence.ranks)
    if alone is None or (held is not None and 0 not in (held.rank, *held.ranks)):
        return ""
    cost = next((stage.cost_s_per_batch for stage in result.stages if stage.name == name), None)
    if cost is None or not (known(cost.low) and 0 < cost.low <= cost.estimate <= alone.seconds_per_batch):
        return ""
    loader = duration(alone.seconds_per_batch)
    return f"{duration(cost.estimate)} of the {loader} that the loader alone takes for a batch"


def part_time(result: Result, part: StepPart) -> str:
    """Return the time of a part of the step: of one that may be nothing its bound, of a bottleneck its interval."""
    if part.at_most_s is None:
        return duration(part.s_per_batch)
    if part.name != result.verdict.bottleneck:
        return at_most(part.at_most_s)
    around = part.interval
    return duration(part.s_per_batch) if around is None else duration_interval(around.mapped(lambda s: max(0.0, s)))


def short_answer(result: Result) -> Iterator[Section]:
    """Yield state and job in one line, and the answer."""
    state = STATES[standing(result)]
    job = Paragraph(f"{state}  {job_name(result)}", "state")
    facts = Paragraph(job_facts(result), "note")
    yield Section("", (job, facts, *map(Paragraph, _answer(result))), folded=False)


def page_answer(result: Result) -> Iterator[Section]:
    """Yield state and job, the answer in one line, and the verdict in full, with its efficiencies."""
    job = Paragraph(f"{STATES[standing(result)]}  {job_name(result)}", "state")
    verdict, rest = result.verdict, headline(result) if on_cpu(result) else sentences(result)
    if verdict.judged_by == "epoch_efficiency" and not on_cpu(result):
        within, over = percent_interval(verdict.efficiency), percent_interval(verdict.epoch_efficiency)
        rest.append(f"Efficiency: {within} within an epoch, {over} over a whole one.")
    rest += filter(None, _beside_steps(result))
    facts = Paragraph(job_facts(result), "note")
    yield Section("", (job, Paragraph(_in_one_line(result), "answer"), *map(Paragraph, rest), facts), folded=False)


def pull_request_answer(result: Result) -> Iterator[Section]:
    """Yield a heading that names the job, and the answer."""
    heading = Paragraph(_HEADINGS[standing(result)].format(job=job_name(result)), "heading")
    facts = Paragraph(job_facts(result), "small")
    yield Section("", (heading, facts, *map(Paragraph, _answer(result))), folded=False)


_HEADINGS = {
    "input_bound": "🔴 {job} waits for its data",
    "sync_bound": "🔴 {job} waits for its gradients",
    "device_bound": "🟢 {job} keeps its device busy",
    "undecided": "⚪ {job}: undecided",
}


def warnings(result: Result, most: int | None = None) -> Iterator[Section]:
    """Yield reasons not to trust a number: all of them, or the first."""
    messages = tuple(warning.message for warning in result.warnings[:most])
    yield Section("Warnings", (Items(messages, "Warning", warn=True),), folded=False)


def further_warnings(result: Result) -> Iterator[Section]:
    """Yield the warnings for which a pull request has no room."""
    messages = tuple(warning.message for warning in result.warnings[MAX_ALERTS:])
    yield Section("Further warnings", (Items(messages, "Warning", warn=True),))


def cost(result: Result) -> Iterator[Section]:
    """Yield the cost of the diagnosis; on a page also its version and date."""
    spent = result.cost
    took = (
        f"Measured in {long_duration(spent.seconds)}: {whole(spent.batches)} batches, {whole(spent.samples)} samples, "
        f"{size(spent.cache_bytes)} of caches."
    )
    origin = f"{took} {result.tool.name} {result.tool.version}, {result.created}"
    yield Section("", (Paragraph(took, "small", on=("verbose",)), Paragraph(origin, "small", on=PAGES)), folded=False)


def where_more_is(result: Result) -> Iterator[Section]:
    """Yield the last line of a short report: its cost, and its omissions."""
    rate = next((e.coupled for e in result.experiments if e.name == RAW), None)
    rounds = {block.round for block in blocks_of(rate)}
    took = f"Measured in {long_duration(result.cost.seconds)}, {plural(len(rounds), 'round')}."
    left_out = list(_left_out(result))
    more = ", ".join([*left_out, "tables and intervals"]) if left_out else "All tables and intervals"
    yield Section("", (Paragraph(f"{took} {more}: --verbose.", "small"),), folded=False)


def _left_out(result: Result) -> Iterator[str]:
    fixes, warned = left_out_of_short(result), len(result.warnings[MAX_WARNINGS:])
    if fixes:
        yield plural(fixes, "more fix")
    if warned:
        yield plural(warned, "more warning")


def lost_money(result: Result) -> str:
    """Return the money that an hour of training loses, as one sentence; empty if no price was given."""
    price = result.evidence.gpu_hour_price
    if not known(price) or price <= 0:
        return ""
    lost = result.evidence.lost_per_gpu_hour
    if lost is None or not all(known(value) for value in (lost.estimate, lost.low, lost.high)):
        return f"The part of the {price:.12g} per GPU hour that is lost is unknown."
    if result.verdict.state == "undecided":
        return f"The part of the {price:.12g} per GPU hour that is lost is undecided, like the verdict."
    # Cents where the price is some units, and as many digits of a smaller price.
    decimals = min(9, max(2, 2 - math.floor(math.log10(price))))
    estimate, low, high = (number(value, decimals) for value in (lost.estimate, lost.low, lost.high))
    span = f"{low} to {high}" if lost.low < 0 else f"{low}–{high}"
    return f"Of the {price:.12g} that a GPU hour costs, {estimate} ({span}) is lost in each hour of training."
