"""Stages that the user marked: what recording finds out about them, and how they are then served."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from bottleneck.loader import modes, trees
from bottleneck.loader.record.tape import Call
from bottleneck.loader.replay.replay import MarkReplay

_CHECKED_ITEMS = 2


@dataclass
class MarkFacts:
    """What one worker found out about the marked stages of its items, or of its batches.

    Attributes:
        orders: The orders in which sites finished for the first time, one entry for each different one.
        refused: Sites that cannot be served from a recording, and why.
        changes_arguments: Sites that change their arguments in place.
        outputs_changed: Sites whose output later code changes in place -> seconds that a copy of it takes.
        alone: Their calls work without the code around them.
        calls: Site -> its recorded calls.
        items: Items, or batches, that were recorded.
    """

    orders: set[tuple[str, ...]] = field(default_factory=set)
    refused: dict[str, str] = field(default_factory=dict)
    changes_arguments: set[str] = field(default_factory=set)
    outputs_changed: dict[str, float] = field(default_factory=dict)
    alone: bool = True
    calls: dict[str, int] = field(default_factory=dict)
    items: int = 0

    def add(self, calls: list[Call]) -> None:
        """Note the calls of one recorded item or batch."""
        self.items += 1
        if calls:
            self.orders.add(tuple(dict.fromkeys(call.site for call in calls)))
        for call in calls:
            self.calls[call.site] = self.calls.get(call.site, 0) + 1

    def check(self, calls: list[Call], value: Any, again: Callable[[], Any], same: Callable[[Any, Any], bool]) -> None:
        """Find out whether an item comes out the same when its marked stages are served from their recording.

        Args:
            calls: The recorded calls of the item; their outputs are left as they were.
            value: A copy of the item.
            again: Makes the item once more.
            same: Whether two items are the same, as far as can be told.
        """
        if self.items > _CHECKED_ITEMS:
            return
        by_site = recorded_by_site(calls)
        if not self._replays(by_site, value, again, same):
            for site in by_site:
                if not self._replays({site: by_site[site]}, value, again, same):
                    self.refused[site] = "the item comes out otherwise when its recorded output is served"
            left = {site: found for site, found in by_site.items() if site not in self.refused}
            if left and not self._replays(left, value, again, same):
                self.refused |= dict.fromkeys(left, "the item comes out otherwise when recorded outputs are served")
        self._check_alone(calls)

    def _replays(
        self,
        by_site: dict[str, list[Call]],
        value: Any,
        again: Callable[[], Any],
        same: Callable[[Any, Any], bool],
    ) -> bool:
        calls = [call for found in by_site.values() for call in found]
        before = [trees.copy_deep(call.output) for call in calls]
        try:
            held = same(value, MarkReplay(by_site, frozenset()).run(again))
        except Exception:  # noqa: BLE001 - the fault of the replay, not of the user's code
            held = False
        for old, call in zip(before, calls, strict=True):
            if not trees.equal(old, call.output):
                call.output = old
                started = time.perf_counter()
                trees.copy_deep(old)
                self.outputs_changed[call.site] = time.perf_counter() - started
        return held

    def _check_alone(self, calls: list[Call]) -> None:
        replay = MarkReplay({}, frozenset())
        for call in calls:
            before = trees.copy_deep((call.args, call.kwargs)) if _holds_data(call) else None
            try:
                replay.run_calls([call], frozenset())
            except Exception:  # noqa: BLE001 - one that cannot run alone is not used so
                self.alone = False
            if before is not None and not trees.equal(before, (call.args, call.kwargs)):
                self.changes_arguments.add(call.site)
                call.args, call.kwargs = before


def _holds_data(call: Call) -> bool:
    """Whether arguments are worth comparing: a dataset, given as `self`, is not."""
    given = (*call.args, *call.kwargs.values())
    return all(trees.is_data(value) for value in given)


def recorded_by_site(calls: Iterable[Call]) -> dict[str, list[Call]]:
    """Sort calls by their site."""
    found: dict[str, list[Call]] = {}
    for call in calls:
        found.setdefault(call.site, []).append(call)
    return found


@dataclass(frozen=True)
class MarkPlan:
    """How marked stages are served; the same in all workers.

    Attributes:
        sample: Sites within `__getitem__` or `__iter__`, in the order of execution.
        collate: The same within the collate function.
        copied: Sites whose output is copied each time it is served.
        changes_arguments: Sites that get a copy of what they were called with.
        sample_alone: The stages of an item work without the code around them.
        collate_alone: The same for a batch.
    """

    sample: tuple[str, ...] = ()
    collate: tuple[str, ...] = ()
    copied: frozenset[str] = frozenset()
    changes_arguments: frozenset[str] = frozenset()
    sample_alone: bool = False
    collate_alone: bool = False

    def bit(self, site: str) -> int:
        """The bit of a mode that skips a site."""
        return modes.skip_bit((*self.sample, *self.collate).index(site))

    def bits(self, sites: Iterable[str]) -> int:
        """The bits of a mode that skip all of some sites."""
        return sum(self.bit(site) for site in sites)

    def skipped(self, sites: Iterable[str], mode: int) -> frozenset[str]:
        """Those of some sites that a mode skips."""
        return frozenset(site for site in sites if mode & self.bit(site))


def plan_marks(
    sample: list[MarkFacts], collate: list[MarkFacts], unusable: dict[str, str], taken: Iterable[str]
) -> tuple[MarkPlan, list[tuple[str, str]]]:
    """Decide which marked stages are measured.

    Args:
        sample: What each worker found out about its items.
        collate: The same about its batches.
        unusable: Sites that cannot be used, and why.
        taken: Names of stages that are measured besides; a marked stage cannot have the same.

    Returns:
        The plan, and a warning for each site that is not used.
    """
    refused = dict(unusable)
    for facts in (*sample, *collate):
        refused |= facts.refused
    in_sample = {site for facts in sample for site in facts.calls}
    in_collate = {site for facts in collate for site in facts.calls}
    refused |= dict.fromkeys(in_sample & in_collate, "it is called both in __getitem__ and in collate_fn")
    refused |= {f"@{name}": f"another stage is called {name}" for name in taken if f"@{name}" in in_collate}
    orders: list[tuple[str, ...]] = []
    for group in (sample, collate):
        seen = {order for facts in group for order in facts.orders}
        refused |= dict.fromkeys(_disordered(seen), "it is called in another order from item to item")
        orders.append(tuple(site for site in _merge(seen) if site not in refused))
    room = modes.MOST_MARKS - len(orders[0])
    refused |= dict.fromkeys(orders[1][max(0, room) :], f"there are more than {modes.MOST_MARKS} marked stages")
    refused |= dict.fromkeys(orders[0][modes.MOST_MARKS :], f"there are more than {modes.MOST_MARKS} marked stages")
    everything = (*sample, *collate)
    plan = MarkPlan(
        sample=orders[0][: modes.MOST_MARKS],
        collate=orders[1][: max(0, room)],
        copied=frozenset(site for facts in everything for site in facts.outputs_changed),
        changes_arguments=frozenset(site for facts in everything for site in facts.changes_arguments),
        sample_alone=all(facts.alone for facts in sample),
        collate_alone=all(facts.alone for facts in collate),
    )
    return plan, [*_refusals(refused), *_copies(plan, everything)]


def _refusals(refused: dict[str, str]) -> Iterator[tuple[str, str]]:
    for site, why in sorted(refused.items()):
        if site.startswith("@"):
            mark = f'`@bottleneck.stage("{site[1:]}")`'
            yield "mark-not-used", f"{mark} is not used: {why}. Its work is part of the stage around it."


def _copies(plan: MarkPlan, everything: Iterable[MarkFacts]) -> Iterator[tuple[str, str]]:
    seconds = {site: copy_s for facts in everything for site, copy_s in facts.outputs_changed.items()}
    for site in sorted(plan.copied & {*plan.sample, *plan.collate}):
        mark = f'`@bottleneck.stage("{site[1:]}")`'
        yield (
            "mark-output-changed",
            f"What {mark} gives is changed in place by later code, so that a copy of it is served each time; that "
            f"takes {1e3 * seconds[site]:.2g} ms a call, in the experiments where `{site[1:]}` is cached.",
        )


def _disordered(orders: set[tuple[str, ...]]) -> set[str]:
    """Sites that come now before and now after another."""
    before = {(a, b) for order in orders for n, a in enumerate(order) for b in order[n + 1 :]}
    return {site for a, b in before if (b, a) in before for site in (a, b)}


def _merge(orders: set[tuple[str, ...]]) -> list[str]:
    """Put all sites into one order that agrees with each of some orders."""
    follows: dict[str, set[str]] = {}
    for order in sorted(orders, key=len, reverse=True):
        for number, site in enumerate(order):
            follows.setdefault(site, set()).update(order[:number])
    placed: list[str] = []
    while len(placed) < len(follows):
        free = [site for site in follows if site not in placed and follows[site] <= set(placed)]
        # Sites that were refused for their disorder may wait for each other.
        placed.append((free or [site for site in follows if site not in placed])[0])
    return placed
