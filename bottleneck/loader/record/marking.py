"""Which of the stages that the user marked are measured, and which bits of a mode stand for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from bottleneck.job.marks import is_mark, name_of, site_of
from bottleneck.loader import modes


@dataclass(frozen=True)
class MarkPlan:
    """How marked stages are served; the same in all workers.

    Attributes:
        sample: Sites within `__getitem__` or `__iter__`, in the order of execution.
        collate: The same within the collate function.
        sample_alone: The stages of an item work without the code around them.
        collate_alone: The same for a batch.
    """

    sample: tuple[str, ...] = ()
    collate: tuple[str, ...] = ()
    sample_alone: bool = False
    collate_alone: bool = False

    @property
    def sites(self) -> tuple[str, ...]:
        return (*self.sample, *self.collate)

    def bit(self, site: str) -> int:
        """The bit of a mode that skips a site."""
        return modes.skip_bit(self.sites.index(site))

    def bits(self, sites: Iterable[str]) -> int:
        """The bits of a mode that skip all of some sites."""
        return sum(self.bit(site) for site in sites)

    def skipped(self, sites: Iterable[str], mode: int) -> frozenset[str]:
        return frozenset(site for site in sites if mode & self.bit(site))


def plan_marks(
    sample: Iterable[tuple[str, ...]],
    collate: Iterable[tuple[str, ...]],
    unusable: dict[str, str],
    taken: Iterable[str] = (),
    *,
    sample_alone: bool = True,
    collate_alone: bool = True,
) -> tuple[MarkPlan, dict[str, str]]:
    """Decide which marked stages are measured, and why the others are not.

    Args:
        sample: The orders in which sites were called within items.
        collate: The same within batches.
        unusable: Sites that cannot be used, and why.
        taken: Names of stages that are measured besides; a marked stage cannot have the same.
        sample_alone: The stages of an item work without the code around them.
        collate_alone: The same for a batch.
    """
    groups = [{tuple(dict.fromkeys(filter(is_mark, order))) for order in orders} for orders in (sample, collate)]
    in_sample, in_collate = ({site for order in orders for site in order} for orders in groups)
    refused = {site: why for site, why in unusable.items() if is_mark(site)}
    refused |= dict.fromkeys(in_sample & in_collate, "it is called both in __getitem__ and in collate_fn")
    refused |= {site_of(name): f"another stage is called {name}" for name in taken if site_of(name) in in_collate}
    room, kept = modes.MOST_MARKS, list[tuple[str, ...]]()
    for orders in groups:
        refused |= dict.fromkeys(_disordered(orders), "it is called in another order from item to item")
        sites = [site for site in _merge(orders) if site not in refused]
        refused |= dict.fromkeys(sites[room:], f"there are more than {modes.MOST_MARKS} marked stages")
        kept.append(tuple(sites[:room]))
        room -= len(kept[-1])
    return MarkPlan(kept[0], kept[1], sample_alone, collate_alone), refused


def warn_of_marks(plan: MarkPlan, refused: dict[str, str], copies_s: dict[str, float]) -> Iterator[tuple[str, str]]:
    """Yield (id, message) for marked stages that are not used, or of which copies are served.

    Args:
        refused: Those that are not measured, and why.
        copies_s: Sites whose output later code changes in place -> seconds that a copy of it takes.
    """
    for site, why in sorted(refused.items()):
        yield "mark-not-used", f"{_written(site)} is not used: {why}. Its work is part of the stage around it."
    for site in sorted(copies_s.keys() & set(plan.sites)):
        yield (
            "mark-output-changed",
            f"What {_written(site)} gives is changed in place by later code, so that a copy of it is served each time; "
            f"that takes {1e3 * copies_s[site]:.2g} ms a call, in the experiments where `{name_of(site)}` is cached.",
        )


def _written(site: str) -> str:
    return f'`@bottleneck.stage("{name_of(site)}")`'


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
