"""Check that what was recorded replays to what the direct path gives, before anything relies on it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import astuple, dataclass, field
from typing import Any

import numpy as np
import torch

from bottleneck.loader import trees
from bottleneck.loader.record.marking import MarkFacts
from bottleneck.loader.record.tape import Call, RngState, Tape
from bottleneck.loader.replay.replay import Playback, Replay, StopAfterCut, recorded_arguments
from bottleneck.loader.replay.tail import copy_locals

THOROUGH_FETCHES, BRIEF_FETCHES = 20, 6
"""How often an item is fetched, or as many together, to check two with all repetitions, or one with a single one."""
FETCHES = 4
"""How often an item is fetched again to see whether it comes out the same.

One that draws from a generator of its own, with few outcomes, may come twice by chance.
"""


@dataclass(frozen=True)
class Verification:
    """What held when one item was fetched directly, recorded, and replayed with the same seed.

    Attributes:
        reproducible: The direct path gives the same item twice. Where it does not, types and shapes are
            compared instead of values.
        recorded: Recording does not change the item.
        augment: The augmentation alone, called with its recorded arguments, gives its recorded output.
        replay: The item comes out the same with the recorded outputs of all cuts served.
        stop: The code behind the augmentation can be left out.
        tail: The second half of `__getitem__`, run from its recorded local variables, gives the same item.
        changes_locals: That half changes its local variables in place.
        changes_arguments: Sites that change their arguments in place, and so get a copy each time -> seconds that
            the copy of one call's arguments takes.
        changes_outputs: Code behind a cut changes its output in place.
        checked: Anything of this has been looked at; not where that would have taken too long.
    """

    reproducible: bool = False
    recorded: bool = False
    augment: bool = False
    replay: bool = False
    stop: bool = False
    tail: bool = False
    changes_locals: bool = False
    changes_arguments: dict[str, float] = field(default_factory=dict)
    changes_outputs: bool = False
    checked: bool = True


UNCHECKED = Verification(recorded=True, changes_outputs=True, checked=False)
"""Of items that take too long to fetch them again: what cannot be known is taken for the worse."""


def _seed(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def verify(run: Callable[[Any], Any], request: Any, tape: Tape, seed: int, fetches: int = FETCHES) -> Verification:
    """Fetch one item directly, recorded and replayed, and compare.

    Args:
        run: Fetches an item of the dataset, through its cuts.
        request: What `run` is called with; it must be possible to fetch it several times.
        tape: The tape of the dataset's cuts.
        seed: Seed for every fetch.
        fetches: How often the item is fetched again to see whether it comes out the same.
    """
    outside = RngState.capture()
    try:
        return _verify(run, request, tape, seed, fetches)
    finally:
        outside.restore()


def _verify(run: Callable[[Any], Any], request: Any, tape: Tape, seed: int, fetches: int) -> Verification:
    _seed(seed)
    direct = trees.copy_deep(run(request))
    reproducible = _comes_again(run, request, seed, direct, fetches)
    same = trees.equal if reproducible else trees.similar
    for _ in range(2):  # the first recording finds out which sites are no clean cuts
        _seed(seed)
        with tape.recording(keep_rng=True) as calls:
            recorded = run(request)
    local_variables = tape.locals
    if not same(direct, recorded):
        return Verification(reproducible=reproducible)
    calls = [call for call in calls if call.site not in tape.unusable]
    augment, changing = check_augment_alone(calls, tape, same)
    replay, changes_outputs = _check_replay(run, request, tape, calls, seed, direct, same)
    tail, changes_locals = _check_tail(tape, calls, local_variables, direct, same)
    return Verification(
        reproducible=reproducible,
        recorded=True,
        augment=augment,
        replay=replay,
        stop=_check_stop(run, request, tape, calls),
        tail=tail,
        changes_locals=changes_locals,
        changes_arguments=changing,
        changes_outputs=changes_outputs,
    )


def _comes_again(run: Callable[[Any], Any], request: Any, seed: int, direct: Any, fetches: int) -> bool:
    for _ in range(fetches):
        _seed(seed)
        if not trees.equal(direct, run(request)):
            return False
    return True


def verify_marks(
    run: Callable[[Any], Any], request: Any, tape: Tape, seed: int, facts: MarkFacts, fetches: int = FETCHES
) -> None:
    """Fetch one item directly, recorded, and with its marked stages served, and note what held.

    Args:
        run: Fetches an item of the dataset.
        request: What `run` is called with; it must be possible to fetch it several times.
        tape: The tape of the dataset.
        seed: Seed for every fetch.
        facts: Receives what is found out.
        fetches: How often the item is fetched again to see whether it comes out the same.
    """
    outside = RngState.capture()

    def again() -> Any:
        _seed(seed)
        return run(request)

    try:
        direct = trees.copy_deep(again())
        same = trees.equal if _comes_again(run, request, seed, direct, fetches) else trees.similar
        for _ in range(2):  # the first recording finds out which marks are no clean cuts
            with tape.recording(keep_rng=True) as calls:
                recorded = again()
        calls = [call for call in calls if call.site not in tape.unusable]
        if not same(direct, recorded):
            facts.refused |= {call.site: "recording its calls changed the item" for call in calls}
            return
        facts.check(calls, direct, again, same)
    finally:
        outside.restore()


def check_augment_alone(
    calls: list[Call], tape: Tape, same: Callable[[Any, Any], bool]
) -> tuple[bool, dict[str, float]]:
    """Call the augmentation with its recorded arguments.

    Returns:
        Whether the outputs are as recorded, and the sites that changed their arguments -> seconds for copying them.
    """
    held, changing = True, dict[str, float]()
    for call in calls:
        if tape.stage(call.site) != "augment":
            continue
        if call.rng_before is not None:
            call.rng_before.restore()
        started = tape.clock()
        args, kwargs = recorded_arguments(call, {call.site})
        copying_s = tape.clock() - started
        try:
            output = call.function(*args, **kwargs)
        except Exception:  # noqa: BLE001 - one that cannot run alone is not used so
            return False, changing
        held = held and same(call.output, output)
        if not (trees.equal(args, call.args) and trees.equal(kwargs, call.kwargs)):
            changing[call.site] = copying_s
    return held, changing


def _check_replay(
    run: Callable[[Any], Any],
    request: Any,
    tape: Tape,
    calls: list[Call],
    seed: int,
    direct: Any,
    same: Callable[[Any, Any], bool],
) -> tuple[bool, bool]:
    before = [trees.copy_deep(call.output) for call in calls]
    sites = frozenset(call.site for call in calls)
    _seed(seed)
    play = Playback(replayed=sites, copy_outputs=False, restore_rng=True)
    try:
        held = same(direct, Replay(tape, calls, play).run(run, request))
    except Exception:  # noqa: BLE001 - the fault of the replay, not of the user's code
        held = False
    changed = any(not trees.equal(old, call.output) for old, call in zip(before, calls, strict=True))
    for old, call in zip(before, calls, strict=True):
        call.output = old
    return held, changed


def _check_tail(
    tape: Tape,
    calls: list[Call],
    local_variables: dict[str, Any] | None,
    direct: Any,
    same: Callable[[Any, Any], bool],
) -> tuple[bool, bool]:
    first = next((call for call in calls if tape.stage(call.site) == "augment"), None)
    if tape.tail is None or local_variables is None or first is None or first.rng_before is None:
        return False, False
    load = frozenset(call.site for call in calls if tape.stage(call.site) == "load")
    real = frozenset(call.site for call in calls) - load
    before = copy_locals(local_variables, tape.tail.self_name)
    replay = Replay(tape, calls, Playback(load, real, recorded_arguments=True, copy_arguments=real))
    first.rng_before.restore()
    try:
        item = replay.run(tape.tail.function, copy_locals(local_variables, tape.tail.self_name))
        held = same(direct, item)
        replay.run(tape.tail.function, local_variables)
    except Exception:  # noqa: BLE001 - a half that cannot run alone is not used
        return False, False
    changed = any(not trees.equal(before[name], local_variables[name]) for name in tape.tail.names if name in before)
    return held, changed


def _check_stop(run: Callable[[Any], Any], request: Any, tape: Tape, calls: list[Call]) -> bool:
    sites = frozenset(call.site for call in calls)
    try:
        Replay(tape, calls, Playback(real=sites, stop_after_augment=True)).run(run, request)
    except StopAfterCut:
        return True
    except Exception:  # noqa: BLE001 - the fault of the replay, not of the user's code
        return False
    return False


_DISTURBED_SHARE = 0.1
"""The share of items, those that took longest, that say nothing of where the time goes: this process had to wait."""
_ENOUGH_ITEMS = 4


@dataclass(frozen=True)
class ItemTimes:
    """Where the time of one recorded item went, without the time for copying; the parts are no sum."""

    total_s: float = 0.0
    head_s: float = 0.0
    """Before the first call of the augmentation."""
    augment_s: float = 0.0
    load_s: float = 0.0
    """In calls of load sites, within the head."""
    between_s: float = 0.0
    """Between the first and the last call of the augmentation, outside of any cut."""

    @staticmethod
    def sum(items: list[ItemTimes]) -> ItemTimes:
        """Add up the items but the slowest: where one was interrupted for long is chance."""
        spare = max(1, int(_DISTURBED_SHARE * len(items))) if len(items) >= _ENOUGH_ITEMS else 0
        kept = sorted(items, key=lambda item: item.total_s)[: len(items) - spare]
        columns = zip(*(astuple(item) for item in kept), strict=True)
        return ItemTimes(*(sum(column) for column in columns))


@dataclass
class Facts:
    """What a worker found out about its items while recording."""

    items: list[ItemTimes] = field(default_factory=list)
    orders: set[tuple[str, ...]] = field(default_factory=set)
    """The orders in which sites were called, one entry for each different one."""

    def add(self, tape: Tape, calls: list[Call], started_s: float, ended_s: float, samples: int = 1) -> None:
        """Note one recorded item, or the items of one `__getitems__`."""
        self.orders.add(tuple(call.site for call in calls))
        self.items.append(_item_times(tape, calls, started_s, ended_s, samples))


def _item_times(tape: Tape, calls: list[Call], started_s: float, ended_s: float, samples: int) -> ItemTimes:
    augment = [call for call in calls if tape.stage(call.site) == "augment"]
    load = [call for call in calls if tape.stage(call.site) == "load"]
    total_s = max(0.0, ended_s - started_s - tape.copying_s())
    augment_s = _spent_s(augment)
    if samples > 1 and augment:
        # What runs between two calls is the end of one sample and the beginning of the next; only behind the
        # last call it is known to be an end.
        copying_s = tape.copying_s() - tape.copying_s(augment[-1].ended_s)
        # Where one call augments the whole batch, there is one end.
        tail_s = min(samples, len(augment)) * max(0.0, ended_s - augment[-1].ended_s - copying_s)
        return ItemTimes(total_s, max(0.0, total_s - augment_s - tail_s), augment_s, _spent_s(load))
    first = augment[0].started_s if augment else ended_s
    # Copies of arguments were made in between; only those before the first augmentation count here.
    head_s = min(total_s, max(0.0, first - started_s - tape.copying_s(first)))
    load_s = _spent_s([call for call in load if call.ended_s <= first])
    between_s = 0.0
    if augment:
        last = augment[-1].ended_s
        inside = [call for call in calls if call.started_s >= first and call.ended_s <= last]
        between_s = max(0.0, last - first - _spent_s(inside) - (tape.copying_s(last) - tape.copying_s(first)))
    return ItemTimes(total_s, head_s, augment_s, load_s, between_s)


def _spent_s(calls: list[Call]) -> float:
    return sum(call.ended_s - call.started_s for call in calls)
