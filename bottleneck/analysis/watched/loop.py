"""A process that trains: the thread of its loop, and the activity of that thread at each sample."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from bottleneck.analysis.watched.loops import Marks, Source
from bottleneck.analysis.watched.roles import (
    calls_module,
    ends_with,
    is_fetch,
    is_users,
    line_at_work,
    loader_mark,
    training_mark,
    trains,
    users_frames,
    waits,
    worker_part,
)
from bottleneck.results.stacks import Frame, ProcessStacks, Stack, ThreadStacks

MIN_TRAINING = 3
"""Minimum samples, in which a thread trains or loads, of a process that trains."""
_MIN_LEADING, _MIN_LEADING_SHARE = 2, 0.02
"""Minimum samples in which a line leads to the training, unless it always does, and their share of all that do."""
_Place = tuple[str, int]
"""File and line."""


class Doing(Enum):
    """Activity of a loop's thread."""

    WAITS = "waits"
    """The thread waits for a batch that others make."""
    MAKES = "makes"
    """The thread makes a batch, or a part of one, itself."""
    COPIES = "copies"
    """The thread copies to a device, or waits there for the device's earlier work."""
    ELSE = "else"
    """The thread trains, logs or saves."""


@dataclass
class Loop:
    """The loop of a process."""

    process: ProcessStacks
    thread: ThreadStacks
    doing: tuple[Doing, ...]
    """Activity at each sample."""
    lines: tuple[tuple[Frame, Frame | None] | None, ...]
    """Line that represents each sample, and its caller; None if the sample is not input."""
    heads: dict[Frame, int] = field(default_factory=dict)
    """Lines of the loop that request input without a DataLoader, and the number of their samples."""
    has_loader: bool = False
    """True if it takes batches from a DataLoader."""
    learns: bool = True
    """True if a backward pass or an optimizer was seen; otherwise it may only evaluate, or act in a simulator."""

    @property
    def others(self) -> list[ThreadStacks]:
        """The other threads of the process."""
        return [thread for thread in self.process.threads if thread.name != self.thread.name]

    def flags(self, *kinds: Doing) -> list[bool]:
        """Return for each sample True if its activity is one of these."""
        return [one in kinds for one in self.doing]


def find_loop(process: ProcessStacks, sources: Mapping[str, Source]) -> Loop | None:
    """Return the loop of a process; None if it was not seen to train, or is a worker."""
    counted = [(_training_samples(thread), at) for at, thread in enumerate(process.threads)]
    most, at = max(counted, default=(0, 0))
    if most < MIN_TRAINING:
        return None
    thread = _since_it_began(process.threads[at])
    reader = _Reader(thread.stacks, sources)
    told = [reader.read(stack) for stack in thread.stacks]
    has_loader = any(loader_mark(stack) is not None for stack in thread.stacks)
    doing, lines = tuple(doing for doing, _ in told), tuple(line for _, line in told)
    learns = any(any(map(trains, stack)) for stack in dict.fromkeys(thread.stacks))
    return Loop(process, thread, doing, lines, reader.heads, has_loader, learns)


def _since_it_began(thread: ThreadStacks) -> ThreadStacks:
    """Return the thread without the samples before its loop: imports, reading an index, making a model."""
    marked = (loader_mark(stack) is not None or training_mark(stack) is not None for stack in thread.stacks)
    began = next((at for at, is_marked in enumerate(marked) if is_marked), 0)
    return replace(thread, stacks=thread.stacks[began:])


def _training_samples(thread: ThreadStacks) -> int:
    if any(worker_part(stack) is not None for stack in thread.stacks[:1]):
        return 0
    training = sum(training_mark(stack) is not None for stack in thread.stacks)
    # A thread that only loads runs ahead of the one that trains.
    return 2 * training + sum(loader_mark(stack) is not None for stack in thread.stacks)


class _Reader:
    """A classifier of a loop's samples, which first collects from all of them which line leads where."""

    def __init__(self, stacks: Sequence[Stack], sources: Mapping[str, Source]) -> None:
        self._sources, self.heads = sources, defaultdict[Frame, int](int)
        self._marks: defaultdict[str, Marks] = defaultdict(Marks)
        self._trained = _led_to_training(stacks)
        for stack in dict.fromkeys(stacks):
            self._mark(stack)
        self._inputs = {
            file: sources[file].input_lines(marks) for file, marks in self._marks.items() if file in sources
        }

    def _mark(self, stack: Stack) -> None:
        at = training_mark(stack)
        found = loader_mark(stack) if at is None else at
        if found is None:
            return
        in_loop = False
        for _, frame in users_frames(stack[:found]):
            if at is not None and (frame.file, frame.line) not in self._trained:
                continue
            marks = self._marks[frame.file]
            if at is None:
                marks.loads.add(frame.line)
            elif calls_module(stack[at]):
                marks.forward[frame.line] = marks.forward.get(frame.line, False) or in_loop
            else:
                marks.other.add(frame.line)
            source = self._sources.get(frame.file)
            in_loop = in_loop or (source is not None and source.is_in_loop(frame.line))

    def read(self, stack: Stack) -> tuple[Doing, tuple[Frame, Frame | None] | None]:
        """Return the activity of the loop, and the line that represents the sample."""
        at = loader_mark(stack)
        if at is not None:
            inner = stack[at:]
            if waits(stack) and not any(map(is_fetch, inner)):
                return Doing.WAITS, line_at_work(stack[:at]) or line_at_work(stack)
            own = any(map(is_users, inner))
            return Doing.MAKES, line_at_work(inner) if own else line_at_work(stack[:at]) or line_at_work(inner)
        if training_mark(stack) is not None:
            return Doing.ELSE, None
        return self._between(stack)

    def _between(self, stack: Stack) -> tuple[Doing, tuple[Frame, Frame | None] | None]:
        """Classify a sample in the loop's own code."""
        for position, frame in users_frames(stack):
            marks, inputs = self._marks[frame.file], self._inputs.get(frame.file, {})
            if frame.line in inputs and (not inputs[frame.line] or _runs_other_code(stack[position + 1 :])):
                self.heads[frame] += 1
                line = line_at_work(stack)
                if waits(stack):
                    return Doing.WAITS, (frame, None)
                return (Doing.COPIES if self._copies(stack) else Doing.MAKES), line
            if frame.line not in marks.forward and frame.line not in marks.other:
                break
        return Doing.ELSE, None

    def _copies(self, stack: Stack) -> bool:
        *_, (position, frame) = users_frames(stack)
        source = self._sources.get(frame.file)
        return source is not None and source.copies(frame.line) and not _runs_other_code(stack[position + 1 :])


def _led_to_training(stacks: Sequence[Stack]) -> set[_Place]:
    """Return the user's lines that lead to the training, without those that seem to by a torn sample.

    The process is not stopped for a sample, so that its outer frames may be of one moment and its inner frames of
    another: the line that reads a batch then seems to call a model.
    """
    seen, led, training = Counter[_Place](), Counter[_Place](), 0
    for stack, count in Counter(stacks).items():
        at = training_mark(stack)
        places = {position: (frame.file, frame.line) for position, frame in users_frames(stack)}
        seen.update(dict.fromkeys(places.values(), count))
        if at is not None:
            led.update(dict.fromkeys((place for position, place in places.items() if position < at), count))
            training += count
    least = max(_MIN_LEADING, _MIN_LEADING_SHARE * training)
    return {place for place, times in led.items() if times >= least or times == seen[place]}


def _runs_other_code(inner: Stack) -> bool:
    return any(not ends_with(frame.file, ("/torch/",)) and not frame.file.startswith("<") for frame in inner)
