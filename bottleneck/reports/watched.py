"""A job that was watched: what its loop does with its time, at which lines, and the command that would prove it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator

from bottleneck.analysis.watched.commands import script_of
from bottleneck.reports.answer import STATES
from bottleneck.reports.document import (
    FULL,
    PAGES,
    TERMINAL,
    Bar,
    Column,
    Items,
    Paragraph,
    Section,
    Step,
    Steps,
    Table,
)
from bottleneck.results.format import long_duration, percent, percent_interval, plural
from bottleneck.results.watched import WatchedEdit, WatchedLine, WatchedRank, WatchedResult, WatchedWorkers

_HEADINGS = {
    "input_bound": "🔴 {job} waits for its data",
    "device_bound": "🟢 {job} does not wait for its data",
    "undecided": "⚪ {job}: undecided",
}


def answer(result: WatchedResult) -> Iterator[Section]:
    """State and job in one line, the sentence, and what it rests on."""
    state, job, sentence = result.verdict.state, job_name(result), result.verdict.sentence
    blocks = (
        Paragraph(f"{STATES[state]}  {job}", "state", on=(*TERMINAL, "html")),
        Paragraph(_HEADINGS[state].format(job=job), "heading", on=("markdown",)),
        Paragraph(_basis(result), "note", on=TERMINAL),
        Paragraph(_basis(result), "small", on=PAGES),
        Paragraph(sentence, on=(*TERMINAL, "markdown")),
        Paragraph(sentence, "answer", on=("html",)),
    )
    yield Section("", blocks, folded=False)


def job_name(result: WatchedResult) -> str:
    """The script with its arguments, else the name of the program."""
    script = script_of(result.command)
    return shlex.join(script) if script else os.path.basename((*result.command, "this job")[0])


def _basis(result: WatchedResult) -> str:
    first, workers = result.ranks[0], result.workers
    facts = [
        f"watched for {long_duration(result.seconds)}, not tried",
        f"PID {first.pid}",
        plural(first.samples, "sample"),
        plural(workers.count, "worker") if workers is not None else "",
        plural(len(result.ranks), "rank") if len(result.ranks) > 1 else "",
    ]
    return ", ".join(filter(None, facts))


def loop(result: WatchedResult) -> Iterator[Section]:
    """The time of the loop that waits most, and of its workers."""
    first = result.ranks[0]
    shares = (
        ("waits for a batch", first.waits_share),
        ("makes a batch itself", first.makes_share),
        ("copies to the device, or waits for it", first.copies_share),
        ("trains, logs, saves", first.rest_share),
    )
    rows = tuple((what, percent_interval(share), Bar(share.estimate)) for what, share in shares)
    columns = Column("the loop"), Column("of its time", "interval"), Column("", "bar", on=("text", *PAGES))
    blocks = (Table(columns, rows), Items(tuple(_beside(first, result.workers))))
    yield Section("What the loop does", blocks, folded=False)


def _beside(first: WatchedRank, workers: WatchedWorkers | None) -> Iterator[str]:
    if first.device_busy is not None:
        yield f"The device runs kernels {percent(first.device_busy)} of the time."
    if workers is None:
        return
    text = f"{plural(workers.count, 'worker')} busy {percent_interval(workers.busy_share)} of the time"
    if workers.cpu_share is not None:
        text += f"; computing for {percent(workers.cpu_share)} of that, else waiting, for example for a disk or a lock"
    yield f"{text}."


def lines(result: WatchedResult) -> Iterator[Section]:
    """The costliest lines, first of the loop, then of what feeds it."""
    columns = (
        Column("in", "text"),
        Column("line", "path"),
        Column("function", "code"),
        Column("called by", "code", on=FULL),
        Column("share", "number"),
    )
    rows = tuple(
        (_where(line), f"{os.path.basename(line.file)}:{line.line}", line.function, line.called_by or "",
         percent(line.share))
        for line in result.lines
    )  # fmt: skip
    note = "Shares are of the loop's time; in workers and threads, of the time in which they are busy."
    blocks = (Table(columns, rows, most=6), Paragraph(note if rows else "", "note"))
    yield Section("The costliest lines", blocks, folded=False)


def _where(line: WatchedLine) -> str:
    if line.process == "worker":
        return "workers"
    return "the loop" if line.thread is None else f"thread {line.thread}"


def ranks(result: WatchedResult) -> Iterator[Section]:
    """Each rank of a job of several, the one that waits the most first."""
    if len(result.ranks) < 2:
        return
    columns = Column("rank"), Column("PID", "number"), Column("input", "interval"), Column("device busy", "number")
    rows = tuple(
        (
            "" if rank.rank is None else f"{rank.rank}",
            f"{rank.pid}",
            percent_interval(rank.input_share),
            "" if rank.device_busy is None else percent(rank.device_busy),
        )
        for rank in result.ranks
    )
    yield Section("Ranks", (Table(columns, rows, most=8),), folded=False)


def next_steps(result: WatchedResult) -> Iterator[Section]:
    """The edit that the script needs first, and the command that tries what was only watched."""
    proof = shlex.join(result.next[0]) if result.next else ""
    if result.edit is not None:
        step = _edit_step(result.edit, proof)
    else:
        step = Step("See what each stage costs, and what fixing it would gain", "", proof=proof)
    yield Section("Next", (Steps((step,) if proof or result.edit else (), label="Next"),), folded=False)


def _edit_step(edit: WatchedEdit, proof: str) -> Step:
    changed = () if edit.before == edit.after else (f"-{edit.before}", f"+{edit.after}")
    code = "\n".join(("+import bottleneck", *((f"+{edit.above}",) if edit.above else ()), *changed))
    text = "Insert the first two lines before the loop." if edit.above else ""
    place = f"{os.path.basename(edit.file)}:{edit.line}"
    return Step("Wrap its batches, so that they can be measured", text, code, place, is_diff=True, proof=proof)


def origin(result: WatchedResult) -> Iterator[Section]:
    """The version that watched, and when."""
    text = f"{result.tool.name} {result.tool.version}, {result.created}"
    yield Section("", (Paragraph(text, "small", on=PAGES),), folded=False)
