"""Check that what was recorded replays to what the direct path gives, before anything relies on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

from bottleneck.job import marks
from bottleneck.loader import trees
from bottleneck.loader.calls import Call, RngState, Tape, seed_generators
from bottleneck.loader.replay import Replay, recorded_arguments

THOROUGH_FETCHES, BRIEF_FETCHES = 20, 6
"""How often an item is fetched, or as many together, to check two with all repetitions, or one with a single one."""
FETCHES = 4
"""How often an item is fetched again to see whether it comes out the same.

One that draws from a generator of its own, with few outcomes, may come twice by chance.
"""


Same = Callable[[Any, Any], bool]
"""Whether two items are the same, to the extent that this can be known for this dataset."""


@dataclass(frozen=True)
class Verification:
    """What held when one item was fetched directly, recorded, and replayed with the same seed.

    Attributes:
        reproducible: The direct path gives the same item twice. Where it does not, types and shapes are
            compared instead of values.
        recorded: Recording does not change the item.
        alone: The recorded calls of the augmentation, or of the marked stages, work without the code around them; what
            the augmentation gives then is as recorded.
        replay: The item comes out the same with the recorded outputs of all cuts served.
        checked: Anything of this has been checked; not where that would have taken too long.
    """

    reproducible: bool = False
    recorded: bool = False
    alone: bool = False
    replay: bool = False
    checked: bool = True

    @staticmethod
    def of_all(results: list[Verification]) -> Verification:
        return Verification(*(all(getattr(result, f.name) for result in results) for f in fields(Verification)))


UNCHECKED = Verification(recorded=True, checked=False)
"""Of items that take too long to fetch them again: what cannot be known is taken for the worse."""


@contextmanager
def _generators_kept() -> Iterator[None]:
    outside = RngState.capture()
    try:
        yield
    finally:
        outside.restore()


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

    with _generators_kept():
        direct = trees.copy_deep(again())
        reproducible = all(trees.equal(direct, again()) for _ in range(fetches))
        same = trees.equal if reproducible else trees.similar
        for _ in range(2):  # the first recording finds out which sites are no clean cuts
            with tape.recording(keep_rng=True) as calls:
                recorded = again()
        calls = [call for call in calls if call.site not in tape.sites.unusable]
        if not same(direct, recorded):
            changed = [call.site for call in calls if marks.is_mark(call.site)]
            tape.sites.unusable |= dict.fromkeys(changed, "recording its calls changed the item")
            return Verification(reproducible=reproducible)
        if tape.sites.marked:
            alone = check_marks(calls, tape, direct, again, same)
            return Verification(reproducible, recorded=True, alone=alone)
        alone = work_alone(calls, tape, same)
        replay = _replays(calls, tape, direct, again, same)
        return Verification(reproducible, recorded=True, alone=alone, replay=replay)


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
        except Exception:  # noqa: BLE001 - one that cannot run alone is not used so
            alone = False
            continue
        alone = alone and (marked or same(call.output, output))
        given = zip((*args, *kwargs.values()), (*call.args, *call.kwargs.values()), strict=True)
        # A dataset, as `self` of a marked method, is not compared.
        if not all(trees.equal(now, before) for now, before in given if not marked or trees.is_data(before)):
            tape.sites.changes_arguments[call.site] = copying_s
    return alone


def _replays(calls: list[Call], tape: Tape, direct: Any, again: Callable[[], Any], same: Same) -> bool:
    """Whether an item stays the same when the outputs of some calls are served; changed ones are restored and noted."""
    before = [trees.copy_deep(call.output) for call in calls]
    served = frozenset(call.site for call in calls)
    try:
        held = same(direct, Replay(tape, calls, served, restore_rng=True).run(again))
    except Exception:  # noqa: BLE001 - the fault of the replay, not of the user's code
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
