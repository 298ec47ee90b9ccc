"""Serve recorded calls while the user's code runs, and check that the item comes out the same."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, fields
from itertools import cycle
from typing import Any

from bottleneck.job import marks
from bottleneck.loader import trees
from bottleneck.loader.calls import Call, Function, RngState, Tape, copy_arguments, seed_generators


class Replay:
    """Answers the calls made while one recorded sample is made again, or one batch is collated again.

    Everything that can be prepared is prepared here, once: a replay runs inside timed blocks, where each
    microsecond of our own would be taken for the user's.

    Args:
        served: Sites whose recorded outputs are served.
        real: Sites that work for real, and with them everything that they call.
        copied: Sites whose output is copied each time it is served, because later code changes it in place.
        restore_rng: Leave the random number generators as the real call would have left them.
    """

    def __init__(
        self,
        tape: Tape,
        calls: list[Call],
        served: frozenset[str],
        real: frozenset[str] = frozenset(),
        *,
        copied: frozenset[str] = frozenset(),
        restore_rng: bool = False,
    ) -> None:
        self._tape = tape
        self._copied = copied
        self._restores_rng = restore_rng
        recorded: dict[str, list[Call]] = {}
        for call in calls:
            if call.site in served or call.site in real:
                recorded.setdefault(call.site, []).append(call)
        self._served = served & recorded.keys()
        self._ready: dict[str, Any] = {}
        """Outputs that can be handed out unchanged at any time."""
        for site, (first, *others) in recorded.items():
            draws = self._restores_rng and first.rng_after is not None
            needs_care = draws or first.inner or site in self._copied
            if site in self._served and not others and not needs_care:
                self._ready[site] = first.output
        # A site that is called more often than it was recorded gets its calls again from the first.
        self._recorded = [(site, found) for site, found in recorded.items() if site not in self._ready]
        self._next: dict[str, Iterator[Call]] = {}
        self._inside = False
        # Marks can be called anywhere; other cuts need no answer where marks are the only ones.
        cuts = any(not marks.is_mark(site) for site in (*served, *real))
        self._answer_cuts = self._answer if cuts else None

    def run(self, function: Function, *args: Any) -> Any:
        """Call a function that runs the user's code, with this replay answering the cuts' calls."""
        tape = self._tape
        self._next = {site: cycle(calls) for site, calls in self._recorded}
        self._inside = False
        tape.handler, marks.handler = self._answer_cuts, self._answer
        try:
            return function(*args)
        finally:
            tape.handler = marks.handler = None

    def _answer(self, site: str, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        # Calls inside another cut were not recorded either.
        if self._inside:
            return function(*args, **kwargs)
        if site in self._ready:
            return self._ready[site]
        recorded = self._next.get(site)
        if recorded is None:
            return function(*args, **kwargs)
        call = next(recorded)
        if site in self._served:
            if call.inner:
                self._run_inner(call)
            if self._restores_rng and call.rng_after is not None:
                call.rng_after.restore()
            output = trees.copy_deep(call.output) if site in self._copied else call.output
        else:
            self._inside = True
            try:
                output = function(*args, **kwargs)
            finally:
                self._inside = False
        return output

    def _run_inner(self, call: Call) -> None:
        """Let the marked stages inside a call that is served work, as they would have."""
        for inner in call.inner:
            if inner.site in self._served:
                self._run_inner(inner)
            else:
                inner.function(*inner.args, **inner.kwargs)

    def run_calls(self, calls: Collection[Call], copied: frozenset[str]) -> list[Any]:
        """Let recorded calls of marked stages, nested ones included, work alone on what they were called with.

        Args:
            copied: Sites that change their arguments, and so get a copy of the recorded ones.

        Returns:
            What each call gave; None for those that are served, and those within another.
        """
        nested = {id(inner) for call in calls for inner in call.inner}
        outputs: list[Any] = self.run(
            lambda: [None if id(call) in nested else self._call_alone(call, copied) for call in calls]
        )
        return outputs

    def _call_alone(self, call: Call, copied: frozenset[str]) -> Any:
        if call.site in self._served:
            self._run_inner(call)
            return None
        args, kwargs = recorded_arguments(call, copied)
        return call.function(*args, **kwargs)


def recorded_arguments(call: Call, copied: Iterable[str]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return what a recorded call was called with; a copy for the sites that change it."""
    if call.site not in copied:
        return call.args, call.kwargs
    if marks.is_mark(call.site):
        return copy_arguments(call)
    return trees.copy_deep(call.args), trees.copy_deep(call.kwargs)


THOROUGH_FETCHES, BRIEF_FETCHES = 20, 6
"""Fetches of one item, or of as many together, to check two with all repetitions, or one with a single one."""
FETCHES = 4
"""Fetches of an item to see whether it comes out the same.

One that draws from its own generator, with few outcomes, may come twice by chance.
"""


Same = Callable[[Any, Any], bool]
"""A function that returns True if two items are the same, as far as this can be known for this dataset."""


@dataclass(frozen=True)
class Verification:
    """Facts that held when one item was fetched directly, recorded, and replayed with the same seed.

    Attributes:
        recorded: Recording does not change the item.
        alone: The recorded calls of the augmentation, or of the marked stages, work without the code around them; what
            the augmentation gives then is as recorded.
        replay: The item comes out the same with the recorded outputs of all cuts served.
        checked: Anything of this has been checked; not where that would have taken too long.
    """

    recorded: bool = False
    alone: bool = False
    replay: bool = False
    checked: bool = True

    @staticmethod
    def of_all(results: list[Verification]) -> Verification:
        return Verification(*(all(getattr(result, f.name) for result in results) for f in fields(Verification)))


UNCHECKED = Verification(recorded=True, checked=False)
"""The verification of items that take too long to fetch again: the unknown is taken for the worse."""


def verify(run: Callable[[Any], Any], request: Any, tape: Tape, seed: int, fetches: int = FETCHES) -> Verification:
    """Fetch one item directly, recorded and replayed, and compare.

    What changes in place, and marked stages that cannot be served, are noted on the tape.

    Args:
        run: Fetches an item of the dataset, through its cuts.
        request: What `run` is called with; it must be possible to fetch it several times.
        fetches: How often the item is fetched again to see whether it comes out the same.
    """

    def again() -> Any:
        seed_generators(seed)
        return run(request)

    outside = RngState.capture()
    try:
        direct = trees.copy_deep(again())
        # Where the direct path does not give the same item twice, types and shapes are compared instead of values.
        same = trees.equal if all(trees.equal(direct, again()) for _ in range(fetches)) else trees.similar
        for _ in range(2):  # the first recording finds out which sites are no clean cuts
            with tape.recording(keep_rng=True) as calls:
                recorded = again()
        calls = [call for call in calls if call.site not in tape.sites.unusable]
        if not same(direct, recorded):
            changed = [call.site for call in calls if marks.is_mark(call.site)]
            tape.sites.unusable |= dict.fromkeys(changed, "recording its calls changed the item")
            return Verification()
        if tape.sites.marked:
            return Verification(recorded=True, alone=check_marks(calls, tape, direct, again, same))
        alone = work_alone(calls, tape, same)
        replay = _replays(calls, tape, direct, again, same)
        return Verification(recorded=True, alone=alone, replay=replay)
    finally:
        outside.restore()


def check_marks(calls: list[Call], tape: Tape, direct: Any, again: Callable[[], Any], same: Same) -> bool:
    """Find out whether an item, or a batch, comes out the same when its marked stages are served.

    Those with which it does not are noted on the tape as unusable.

    Args:
        calls: The recorded calls; their arguments and outputs are left as they were.
        direct: A copy of the item.
        again: Makes the item once more.

    Returns:
        Whether the calls work without the code around them.
    """
    if not _replays(calls, tape, direct, again, same):
        for site in dict.fromkeys(call.site for call in calls):
            if not _replays([call for call in calls if call.site == site], tape, direct, again, same):
                tape.sites.unusable[site] = "the item comes out otherwise when its recorded output is served"
        left = [call for call in calls if call.site not in tape.sites.unusable]
        if left and not _replays(left, tape, direct, again, same):
            why = "the item comes out otherwise when recorded outputs are served"
            tape.sites.unusable |= dict.fromkeys((call.site for call in left), why)
    return work_alone(calls, tape, same)


def work_alone(calls: list[Call], tape: Tape, same: Same) -> bool:
    """Make the recorded calls of the augmentation, or of marked stages, again, on copies of their arguments.

    What changes its arguments is noted on the tape.

    Returns:
        Whether all of them can be made, and what the augmentation gives is as recorded.
    """
    alone = True
    for call in calls:
        marked, started = marks.is_mark(call.site), tape.clock()
        if not marked and tape.stage(call.site) != "augment":
            continue
        args, kwargs = recorded_arguments(call, {call.site})
        copying_s = tape.clock() - started
        if call.rng_before is not None:
            call.rng_before.restore()
        try:
            output = call.function(*args, **kwargs)
        except Exception:
            alone = False
            continue
        alone = alone and (marked or same(call.output, output))
        given = zip((*args, *kwargs.values()), (*call.args, *call.kwargs.values()), strict=True)
        # A dataset, as `self` of a marked method, is not compared.
        if not all(trees.equal(now, before) for now, before in given if not marked or trees.is_data(before)):
            tape.sites.changes_arguments[call.site] = copying_s
    return alone


def _replays(calls: list[Call], tape: Tape, direct: Any, again: Callable[[], Any], same: Same) -> bool:
    """Return True if an item is the same when some calls are served; changed outputs are restored and noted."""
    before = [trees.copy_deep(call.output) for call in calls]
    served = frozenset(call.site for call in calls)
    try:
        held = same(direct, Replay(tape, calls, served, restore_rng=True).run(again))
    except Exception:
        held = False
    for old, call in zip(before, calls, strict=True):
        if not trees.equal(old, call.output):
            call.output = old
            tape.sites.changed_outputs[call.site] = time_copy(old, tape)
    return held


def time_copy(value: Any, tape: Tape) -> float:
    """Return how long it takes to copy a value [s]."""
    started = tape.clock()
    trees.copy_deep(value)
    return tape.clock() - started
