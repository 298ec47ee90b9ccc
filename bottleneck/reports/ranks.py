"""The ranks of a job of many: the slowest, the median and the fastest, and on a page all, or the slowest of many."""

from __future__ import annotations

from collections.abc import Iterator

from bottleneck.analysis.ranks import by_slowness, called, extremes, loader_s, shared_name
from bottleneck.reports.document import Bar, Column, Paragraph, Section, Table
from bottleneck.results.format import count, duration, gain_interval, known, names, whole
from bottleneck.results.records import Rank, Result

_NAMES = {1: ("the only one",), 2: ("slowest", "fastest"), 3: ("slowest", "median", "fastest")}
MOST_RANKS = 32
"""Of a page."""
_COLUMNS = (
    Column("ranks", "text"),
    Column("rank", "number"),
    Column("host", "text"),
    Column("device", "text"),
    Column("waits", "number"),
    Column("loader", "number"),
    Column("slow in", "text"),
    Column("if free", "interval"),
)


def ranks(result: Result) -> Iterator[Section]:
    """A few of the ranks as a table, and what holds for all of them."""
    if not result.ranks:
        return
    yield Section("Ranks", (_table(result), Paragraph(_together(result), "note")), folded=False)


def all_ranks(result: Result) -> Iterator[Section]:
    """A row for each rank, the slowest first, with what its loader takes as a bar."""
    if len(result.ranks) <= len(_NAMES):
        return
    shown = by_slowness(result.ranks, result.evidence.ranks)[:MOST_RANKS]
    longest_s = max((alone_s for rank in shown if known(alone_s := loader_s(rank))), default=0.0)
    columns = (*_COLUMNS[:6], Column("", "bar"), *_COLUMNS[6:])
    rows: list[tuple[str | Bar, ...]] = []
    for rank in shown:
        row, alone_s = _row(rank), loader_s(rank)
        bar = Bar(alone_s / longest_s if known(alone_s) and longest_s else None)
        rows.append((*row[:5], bar, *row[5:]))
    which = "Each rank" if len(shown) == len(result.ranks) else f"The {len(shown)} slowest ranks"
    note = Paragraph(f"{which}, the slowest first; the bar is what its loader takes.", "note")
    yield Section("All ranks", (Table(columns[1:], tuple(rows)), note))


def _table(result: Result) -> Table:
    shown = extremes(result.ranks, result.evidence.ranks)
    rows = tuple((name, *_row(rank)) for name, rank in zip(_NAMES[len(shown)], shown, strict=True))
    straggler = result.verdict.straggler
    marked = frozenset(at for at, rank in enumerate(shown) if straggler is not None and rank.rank == straggler)
    return Table(_COLUMNS, rows, marked)


def _row(rank: Rank) -> tuple[str, ...]:
    free = gain_interval(rank.held) if rank.held is not None else ""
    alone, waits = duration(loader_s(rank)), duration(rank.wait_s_per_batch)
    return whole(rank.rank), rank.host, rank.device, waits, alone, rank.stage or "", free


def _together(result: Result) -> str:
    """What a batch takes all ranks, and what they take from each other."""
    together = result.evidence.ranks
    notes = ["Per batch: what a rank waits for data in the job, and what its loader takes alone, all ranks at once."]
    if any(rank.held is not None for rank in extremes(result.ranks, together)):
        held = together.straggler
        whose = "this rank's data" if held is None or not held.ranks else f"the data of {called(held)}"
        notes.append(f"If free: throughput of the job with {whose} served from a cache.")
    ratio = together.contention.ratio
    if ratio is not None and known(ratio.estimate):
        what = f", by sharing {shared_name(together.contention.what)}" if together.contention.what else ""
        notes.append(f"Together a batch takes them {gain_interval(ratio)} as long as alone{what}.")
    cost_s, reason = together.sync.cost_s_per_batch, together.sync_reason
    if known(cost_s):
        notes.append(f"Sharing gradients takes {duration(max(0.0, cost_s))} of each step.")
    elif reason:
        notes.append(f"What sharing gradients takes is not known: {reason}.")
    lengths = {rank.samples_per_epoch for rank in result.ranks if rank.samples_per_epoch is not None}
    if len(lengths) > 1:
        notes.append(f"Their epochs have {names([count(n) for n in (min(lengths), max(lengths))])} samples.")
    return " ".join(notes)
