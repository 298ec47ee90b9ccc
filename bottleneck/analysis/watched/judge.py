"""The verdict from observation: from the stacks of a running job to the share of its time that the input takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from bottleneck.analysis.settings import LOSS_CLEARLY_SMALL, LOSS_WORTH_TOUCHING, THIS_TOOL
from bottleneck.analysis.watched.commands import command_that_proves, edit_of
from bottleneck.analysis.watched.loop import Doing, Loop, find_loop
from bottleneck.analysis.watched.loops import parsed
from bottleneck.analysis.watched.roles import ends_with, is_fetch, line_at_work, users_frames, waits, worker_part
from bottleneck.analysis.watched.shares import share_of
from bottleneck.analysis.watched.words import nothing_trains, sentence_of
from bottleneck.results.records import SCHEMA_VERSION, Interval, State
from bottleneck.results.stacks import Frame, ProcessStacks, Stack, Watched
from bottleneck.results.watched import (
    WatchedLine,
    WatchedRank,
    WatchedResult,
    WatchedVerdict,
    WatchedWorkers,
    WhichProcess,
)

MAX_LINES = 10
MIN_SHARE = 0.02
"""Minimum share of a reported line."""
MIN_BUSY = 0.05
"""Minimum busy share of a thread that works ahead for the loop."""
_DEVICE_ERROR = 0.02
"""Maximum error of the driver's share of busy time."""

_STARTERS = ("threading.py", "multiprocessing/process.py", "multiprocessing/spawn.py", "concurrent/futures/thread.py")

Line = tuple[Frame, Frame | None]


def judge(watched: Watched, created: str) -> WatchedResult:
    """Return the verdict on a job.

    Args:
        watched: Observations of the job.
        created: Time of creation, in ISO 8601 and UTC.

    Raises:
        MeasurementError: None of its processes was seen to train.
    """
    sources = parsed(watched.sources)
    loops = [loop for one in watched.processes if (loop := find_loop(one, sources)) is not None]
    if not loops:
        raise nothing_trains(watched)
    loops = [loop for loop in loops if loop.learns] or loops
    ranked = sorted(((_rank_of(loop), loop) for loop in loops), key=lambda found: -found[0].input_share.estimate)
    ranks, loops = [rank for rank, _ in ranked], [loop for _, loop in ranked]
    share, loop = ranks[0].input_share, loops[0]
    makers = _Makers(watched, loop, [one.process.pid for one in loops])
    state = _state_of(share)
    edit = None if state == "device_bound" else edit_of(loop, sources)
    at_most = None if state == "device_bound" or share.high >= 1 else 1 / (1 - share.high)
    lines = _ordered(list(_lines_of(loop)), makers.lines(), ranks[0])
    sentence = sentence_of(state, watched.pid, ranks, makers.seen, lines, at_most)
    by_pid = {one.pid: one for one in watched.processes}
    can_be_tried = state != "device_bound" and (loop.has_loader or edit is not None)
    following = command_that_proves(loop.process, by_pid) if can_be_tried else ()
    return WatchedResult(
        schema_version=SCHEMA_VERSION,
        kind="watched",
        tool=THIS_TOOL,
        created=created,
        pid=watched.pid,
        command=loop.process.command,
        seconds=watched.seconds,
        verdict=WatchedVerdict(state, sentence, "watched", share),
        at_most=at_most,
        ranks=tuple(ranks),
        workers=makers.seen,
        lines=lines,
        edit=edit,
        next=(following,) if following else (),
    )


def _ordered(own: list[WatchedLine], of_makers: list[WatchedLine], rank: WatchedRank) -> tuple[WatchedLine, ...]:
    """Return the lines, beginning with those that cost the loop more time: its own, or those it waits for."""
    itself = rank.makes_share.estimate + rank.copies_share.estimate
    first = [of_makers, own] if rank.waits_share.estimate > itself and of_makers else [own, of_makers]
    return tuple(line for part in first for line in part)


def _state_of(share: Interval) -> State:
    if share.low > LOSS_WORTH_TOUCHING:
        return "input_bound"
    return "device_bound" if share.high < LOSS_CLEARLY_SMALL else "undecided"


def _rank_of(loop: Loop) -> WatchedRank:
    process = loop.process
    kinds = (Doing.WAITS, Doing.MAKES) if process.on_accelerator else (Doing.WAITS, Doing.MAKES, Doing.COPIES)
    share = share_of(loop.flags(*kinds))
    if process.device_busy is not None:
        # A host that runs ahead waits for batches while its device is still busy: only its idle time can be lost.
        idle = min(1.0, 1 - process.device_busy + _DEVICE_ERROR)
        share = share.mapped(lambda bound: min(bound, idle))
    return WatchedRank(
        pid=process.pid,
        rank=process.rank,
        samples=len(loop.doing),
        input_share=share,
        waits_share=share_of(loop.flags(Doing.WAITS)),
        makes_share=share_of(loop.flags(Doing.MAKES)),
        copies_share=share_of(loop.flags(Doing.COPIES)),
        rest_share=share_of(loop.flags(Doing.ELSE)),
        device_busy=process.device_busy,
    )


def _lines_of(loop: Loop) -> Iterable[WatchedLine]:
    """Return the lines of the loop's own thread that are input."""
    seen = [line for line in loop.lines if line is not None]
    return _told(seen, len(loop.doing), "main")


def _told(seen: Sequence[Line], of: int, process: WhichProcess, thread: str | None = None) -> list[WatchedLine]:
    counts = Counter(line for line, _ in seen)
    callers: dict[Frame, Counter[str]] = {}
    for line, caller in seen:
        if caller is not None:
            callers.setdefault(line, Counter())[caller.function] += 1
    return [
        WatchedLine(
            process=process,
            file=frame.file,
            line=frame.line,
            function=frame.function,
            share=count / of,
            called_by=callers[frame].most_common(1)[0][0] if frame in callers else None,
            thread=thread,
        )
        for frame, count in counts.most_common(MAX_LINES)
        if count >= MIN_SHARE * of
    ]


class _Makers:
    """The makers of a loop's batches: its workers, other processes that it started, or its other threads.

    Args:
        watched: Observations of the job.
        loop: The loop.
        training: PIDs of the processes that train.
    """

    def __init__(self, watched: Watched, loop: Loop, training: Sequence[int]) -> None:
        below = [one for one in _below(watched.processes, loop.process.pid) if one.pid not in training]
        workers = [(one, stacks) for one in below if (stacks := _worker_stacks(one))]
        helpers = [(one, stacks) for one in below if (stacks := _helper_stacks(one))]
        self._parts: list[tuple[str | None, list[Stack]]] = [(None, stacks) for _, stacks in workers or helpers]
        processes = [one for one, _ in workers or helpers]
        if not self._parts:
            self._parts = [
                (thread.name, list(map(_own, thread.stacks)))
                for thread in loop.others
                if sum(map(_is_busy, map(_own, thread.stacks))) >= MIN_BUSY * len(thread.stacks)
            ]
        count = len(processes) + watched.workers if processes else len(self._parts)
        self.seen = self._all(count, processes, watched.seconds) if self._parts else None

    def _all(self, count: int, processes: Sequence[ProcessStacks], seconds: float) -> WatchedWorkers:
        flags = [[_is_busy(stack) for stack in stacks] for _, stacks in self._parts]
        busy = share_of([flag for one in flags for flag in one])
        clocks = [one.clocks for one in processes if one.clocks is not None]
        time_s = seconds * len(clocks)
        queued = [one.queued_s for one in clocks if one.queued_s is not None]
        cpu_s = sum(one.cpu_s for one in clocks)
        return WatchedWorkers(
            count=count,
            busy_share=busy,
            cpu_share=min(1.0, cpu_s / (time_s * busy.estimate)) if time_s and busy.estimate else None,
            queued_share=min(1.0, sum(queued) / time_s) if time_s and queued else None,
        )

    def lines(self) -> list[WatchedLine]:
        """Return their costliest lines, those of each thread separately."""
        found: list[WatchedLine] = []
        together: list[Line] = []
        for thread, stacks in self._parts:
            busy = [line for stack in stacks if _is_busy(stack) and (line := line_at_work(stack)) is not None]
            if thread is None:
                together += busy
            else:
                found += _told(busy, max(1, len(busy)), "main", thread)
        told = [*_told(together, max(1, len(together)), "worker"), *found]
        return sorted(told, key=lambda line: -line.share)


def _below(processes: Sequence[ProcessStacks], pid: int) -> list[ProcessStacks]:
    found, parents = [], {pid}
    while more := [one for one in processes if one.parent in parents and one not in found]:
        found += more
        parents |= {one.pid for one in more}
    return found


def _worker_stacks(process: ProcessStacks) -> list[Stack]:
    """Return the stacks of a DataLoader worker within its loop; empty for any other process."""
    for thread in process.threads:
        parts = [part for stack in thread.stacks if (part := worker_part(stack)) is not None]
        if parts:
            return parts
    return []


def _helper_stacks(process: ProcessStacks) -> list[Stack]:
    """Return the stacks of a process that runs the user's code, such as a simulator, in its busiest thread."""
    threads = [[_own(stack) for stack in thread.stacks] for thread in process.threads]
    return max(threads, key=lambda stacks: sum(map(_is_busy, stacks)), default=[])


def _own(stack: Stack) -> Stack:
    """Return the part of a stack below the innermost function of Python's modules for threads and processes."""
    starts = (at for at in range(len(stack) - 1, -1, -1) if ends_with(stack[at].file, _STARTERS))
    return stack[next(starts, -1) + 1 :]


def _is_busy(stack: Stack) -> bool:
    if any(map(is_fetch, stack)):
        return True
    return not waits(stack) and any(True for _ in users_frames(stack))
