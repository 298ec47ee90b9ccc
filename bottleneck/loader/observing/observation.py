"""Findings of the pass of observation on whole batches, which those of several workers add up to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from bottleneck.loader.observing.garbage import Collections
from bottleneck.loader.observing.images import Pixels
from bottleneck.loader.observing.meter import Spent, TransformSpent
from bottleneck.loader.observing.network import NetworkSpent
from bottleneck.loader.observing.outputs import MAX_OUTPUTS, SampleData

MAX_CLOCKED = 256
"""Batches whose stages are kept one by one."""


class Line(NamedTuple):
    """A line of the code that makes batches, and what it calls."""

    file: str
    line: int
    function: str
    calls: str | None
    """Module and function right below it; None if that is code in C."""
    library: bool
    """It is not a line of the user's code: none of those is at work."""


class Site(NamedTuple):
    """A line of the user's code that makes an object."""

    file: str
    line: int
    name: str
    """Class of the object, or module and function that makes it."""


@dataclass
class Constructed(Spent):
    """Time in which a line made its object, with all that the constructor calls."""

    parts: int = 0
    """Items, or collations, in which a sample of the thread saw it."""
    same: bool = True
    """True if each sample saw the arguments of the first one."""

    def add(self, other: Spent) -> None:
        super().add(other)
        if isinstance(other, Constructed):
            self.parts += other.parts
            self.same &= other.same


@dataclass
class Observation:
    """Measurements of whole batches.

    Attributes:
        workers: That it comes from; 1 in the main process.
        core_wait_s: Time for which the process was ready to work and had no core; None if unknown.
        stages: Time in each stage, without that of other stages inside it.
        transforms: (stage, place) -> the single transform there.
        lines: (stage, line) -> time of the samples that saw the thread there.
        constructed: (stage, site) -> objects that are made there.
        outputs: Data of some samples, in the order in which a worker made them.
        sampled: Stage -> items, or collations, in which a sample saw the thread there.
        elsewhere: Places whose transforms were called in the user's threads, which are not timed.
        clocked: For each of some batches, the seconds in each stage.
    """

    workers: int = 0
    batches: int = 0
    samples: int = 0
    core_wait_s: float | None = 0.0
    stages: dict[str, Spent] = field(default_factory=dict)
    transforms: dict[tuple[str, str], TransformSpent] = field(default_factory=dict)
    lines: dict[tuple[str, Line], Spent] = field(default_factory=dict)
    constructed: dict[tuple[str, Site], Constructed] = field(default_factory=dict)
    sampled: Counter[str] = field(default_factory=Counter)
    outputs: list[SampleData] = field(default_factory=list)
    elsewhere: set[str] = field(default_factory=set)
    pixels: Pixels = field(default_factory=Pixels)
    collections: Collections = field(default_factory=Collections)
    network: NetworkSpent = field(default_factory=NetworkSpent)
    clocked: list[dict[str, float]] = field(default_factory=list)

    def add(self, other: Observation, named: Callable[[str], str] = str) -> None:
        """Add another one; its stages get the names that a function gives them."""
        self.batches += other.batches
        self.samples += other.samples
        known = self.core_wait_s is not None and other.core_wait_s is not None
        self.core_wait_s = (self.core_wait_s or 0.0) + (other.core_wait_s or 0.0) if known else None
        for stage, spent in other.stages.items():
            self.stages.setdefault(named(stage), Spent()).add(spent)
        for (stage, place), found in other.transforms.items():
            known_as = TransformSpent(name=found.name, order=found.order)
            self.transforms.setdefault((named(stage), place), known_as).add(found)
        for (stage, line), passed in other.lines.items():
            self.lines.setdefault((named(stage), line), Spent()).add(passed)
        for (stage, site), spent_there in other.constructed.items():
            self.constructed.setdefault((named(stage), site), Constructed()).add(spent_there)
        for stage, parts in other.sampled.items():
            self.sampled[named(stage)] += parts
        self.outputs += other.outputs[: max(0, MAX_OUTPUTS - len(self.outputs))]
        self.elsewhere |= other.elsewhere
        self.pixels.add(other.pixels)
        self.collections.add(other.collections)
        self.network.add(other.network, named)
        for batch in other.clocked[: max(0, MAX_CLOCKED - len(self.clocked))]:
            made: Counter[str] = Counter()
            for stage, seconds in batch.items():
                made[named(stage)] += seconds  # type: ignore[assignment]
            self.clocked.append(dict(made))
