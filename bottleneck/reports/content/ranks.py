"""The ranks of a job of many: the slowest, the median and the fastest, and all of them as a map."""

from __future__ import annotations

from collections.abc import Iterator

from bottleneck.analysis.ranks import called, extremes, loader_s, shared_name
from bottleneck.reports.charts.rank_map import draw_ranks
from bottleneck.reports.document import Column, Figure, Paragraph, Section, Table
from bottleneck.results.format import count, duration, gain_interval, known, names, whole
from bottleneck.results.ranks import Rank
from bottleneck.results.records import Result

_NAMES = {1: ("the only one",), 2: ("slowest", "fastest"), 3: ("slowest", "median", "fastest")}


def ranks(result: Result) -> Iterator[Section]:
    """A few of the ranks as a table, and what holds for all of them; on a page with the map."""
    if not result.ranks:
        return
    drawn = draw_ranks(result)
    figure = (Figure("heat", drawn), Paragraph(drawn.note, "note", on=("html",))) if drawn is not None else ()
    yield Section("Ranks", (_table(result), Paragraph(_together(result), "note"), *figure), folded=False)


def _table(result: Result) -> Table:
    columns = (
        Column("ranks", "text"),
        Column("rank", "number"),
        Column("host", "text"),
        Column("device", "text"),
        Column("waits", "number"),
        Column("loader", "number"),
        Column("slow in", "text"),
        Column("if free", "interval"),
    )
    shown = extremes(result.ranks, result.evidence.ranks)
    rows = tuple(_row(name, rank) for name, rank in zip(_NAMES[len(shown)], shown, strict=True))
    straggler = result.verdict.straggler
    marked = frozenset(at for at, rank in enumerate(shown) if straggler is not None and rank.rank == straggler)
    return Table(columns, rows, marked)


def _row(name: str, rank: Rank) -> tuple[str, ...]:
    free = gain_interval(rank.held) if rank.held is not None else ""
    alone, waits = duration(loader_s(rank)), duration(rank.wait_s_per_batch)
    return name, whole(rank.rank), rank.host, rank.device, waits, alone, rank.stage or "", free


def _together(result: Result) -> str:
    """What a batch takes all ranks, and what they take from each other."""
    together = result.evidence.ranks
    told = ["Per batch: what a rank waits for data in the job, and what its loader takes alone, all ranks at once."]
    if any(rank.held is not None for rank in extremes(result.ranks, together)):
        held = together.straggler
        whose = "this rank's data" if held is None or not held.ranks else f"the data of {called(held)}"
        told.append(f"If free: throughput of the job with {whose} served from a cache.")
    ratio = together.contention.ratio
    if ratio is not None and known(ratio.estimate):
        what = f", by sharing {shared_name(together.contention.what)}" if together.contention.what else ""
        told.append(f"Together a batch takes them {gain_interval(ratio)} as long as alone{what}.")
    cost_s, reason = together.sync.cost_s_per_batch, together.sync_reason
    if known(cost_s):
        told.append(f"Sharing gradients takes {duration(max(0.0, cost_s))} of each step.")
    elif reason:
        told.append(f"What sharing gradients takes is not known: {reason}.")
    lengths = {rank.samples_per_epoch for rank in result.ranks if rank.samples_per_epoch is not None}
    if len(lengths) > 1:
        told.append(f"Their epochs have {names([count(n) for n in (min(lengths), max(lengths))])} samples.")
    return " ".join(told)
