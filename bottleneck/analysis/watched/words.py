"""The verdict from observation in words, and the reason if there is none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import PurePath

from bottleneck.analysis.settings import LOSS_CLEARLY_SMALL, LOSS_WORTH_TOUCHING, MOSTLY
from bottleneck.errors import MeasurementError
from bottleneck.results.format import gain, percent, percent_interval, plural
from bottleneck.results.records import State
from bottleneck.results.stacks import Watched
from bottleneck.results.watched import WatchedLine, WatchedRank, WatchedWorkers

_NEARLY_ALWAYS = 0.9
_HARDLY = 0.05


def sentence_of(
    state: State,
    asked: int,
    ranks: Sequence[WatchedRank],
    workers: WatchedWorkers | None,
    lines: Sequence[WatchedLine],
    at_most: float | None,
) -> str:
    """Return the verdict: how the loop and its workers spend their time, and the costliest line.

    Args:
        state: State of the verdict.
        asked: PID that the user gave.
        ranks: Ranks that train, beginning with the one whose input takes the most.
        workers: Makers of the batches of the first rank; None if there are none.
        lines: Costliest lines.
        at_most: Maximum factor of throughput with free input; None if not shown.
    """
    free = "" if at_most is None else f"Free input would bring at most {gain(at_most)} the throughput."
    where = "" if state == "device_bound" else _line(lines)
    parts = [_share(state, asked, ranks), _workers(ranks[0], workers), where, free, _undecided(state)]
    return " ".join(filter(None, parts))


def _share(state: State, asked: int, ranks: Sequence[WatchedRank]) -> str:
    first = ranks[0]
    if len(ranks) > 1:
        all_ranks = "ranks" if first.rank is not None else "processes that train"
        name = f"PID {first.pid}" if first.rank is None else f"rank {first.rank}"
        who = f"Of {len(ranks)} {all_ranks}, {name} waits the most: its loop"
    else:
        who = "The loop" if first.pid == asked else f"The loop in process {first.pid}"
    share = percent_interval(first.input_share)
    if state == "device_bound":
        return f"{who} trains: its input takes {share} of its time."
    waits, makes = first.waits_share.estimate, first.makes_share.estimate
    if makes < _HARDLY * waits:
        return f"{who} waits for batches {share} of its time."
    if waits < _HARDLY * makes:
        return f"{who} makes its batches itself, in the main process, which takes {share} of its time."
    return (
        f"{who} spends {share} of its time on its input: it waits {percent(waits)} and makes {percent(makes)} itself."
    )


def _workers(first: WatchedRank, workers: WatchedWorkers | None) -> str:
    if workers is None:
        return ""
    who = "Its worker is" if workers.count == 1 else f"Its {plural(workers.count, 'worker')} are"
    busy = workers.busy_share.estimate
    said = f"{who} busy {percent(busy)} of the time"
    if busy >= _NEARLY_ALWAYS and first.waits_share.estimate > _HARDLY:
        said += ", and the queue is empty"
    elif busy < MOSTLY and first.waits_share.estimate < _HARDLY:
        said += ", and the queue is full"
    elif busy < MOSTLY:
        said += ": the loop waits for something else, such as the hand-off or the order of the samples"
    if workers.queued_share is not None and workers.queued_share > _HARDLY:
        said += f"; for {percent(workers.queued_share)} of it no core is free"
    return f"{said}."


def _line(lines: Sequence[WatchedLine]) -> str:
    """Return a sentence on the costliest line of the input; empty without lines."""
    if not lines:
        return ""
    most = lines[0]
    of = "the loop's time" if most.process == "main" and most.thread is None else "what the worker does"
    where = f"{PurePath(most.file).name}:{most.line}"
    return f"The costliest line is {where} in {most.function}: {percent(most.share)} of {of}."


def _undecided(state: State) -> str:
    if state != "undecided":
        return ""
    between = f"{percent(LOSS_WORTH_TOUCHING, 0)} and {percent(LOSS_CLEARLY_SMALL, 0)}"
    return f"That is too close to call: the limit is between {between}. Watch for longer: --seconds 60."


def nothing_trains(watched: Watched) -> MeasurementError:
    """Return the reason why there is no verdict, with the activity of the processes instead."""
    seen = list(_seen(watched))
    shown = f" Seen: {'; '.join(seen[:3])}." if seen else ""
    return MeasurementError(
        f"Nothing trains in process {watched.pid}, or in those that it started: no PyTorch DataLoader, model or "
        f"optimizer was active within {watched.seconds:.0f} s.{shown}",
        "Give the PID of the job, or of its launcher, once it trains; --seconds 60 watches for longer.",
    )


def _seen(watched: Watched) -> Iterator[str]:
    for process in watched.processes:
        innermost = Counter(stack[-1] for thread in process.threads[:1] for stack in thread.stacks if stack)
        for frame, _ in innermost.most_common(1):
            yield f"process {process.pid} at {PurePath(frame.file).name}:{frame.line} ({frame.function})"
