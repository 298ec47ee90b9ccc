"""Where the time of the recorded items went: before the augmentation, in it, and in loading."""

from __future__ import annotations

from dataclasses import astuple, dataclass, field, replace
from typing import NamedTuple

from bottleneck.loader.record.tape import Call, Tape

_WAITED_SHARE = 0.1
"""An item that waited longer for a core, as a share of its time, does not show where the time goes."""
_SLOWEST_SHARE = 0.1
"""The share of items, the slowest, that are left out: no kernel counts what other virtual machines take."""
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
    core_wait_s: float = 0.0
    """Ready to run, but without a core: other processes had them all."""

    @staticmethod
    def sum(items: list[ItemTimes]) -> ItemTimes:
        """Add up the times of items."""
        columns = zip(*(astuple(item) for item in items), strict=True)
        return ItemTimes(*(sum(column) for column in columns))

    @property
    def waited_share(self) -> float:
        return self.core_wait_s / self.total_s if self.total_s > 0 else 0.0


def undisturbed(items: list[ItemTimes]) -> list[ItemTimes]:
    """Return the items that show where the time goes: where one was interrupted for long is chance.

    At least half of those that waited least for a core stay, of them all but the slowest.
    """
    if len(items) < _ENOUGH_ITEMS:
        return items
    steady = sorted(items, key=lambda item: item.waited_share)
    kept = max((len(items) + 1) // 2, sum(item.waited_share <= _WAITED_SHARE for item in items))
    quickest = sorted(steady[:kept], key=lambda item: item.total_s)
    return quickest[: kept - max(1, int(_SLOWEST_SHARE * kept))]


class Span(NamedTuple):
    """When an item was fetched."""

    started_s: float
    ended_s: float
    core_wait_s: float = 0.0


@dataclass
class Facts:
    """What a worker found out about its items while recording."""

    items: list[ItemTimes] = field(default_factory=list)
    orders: set[tuple[str, ...]] = field(default_factory=set)
    """The orders in which sites were called, one entry for each different one."""

    def add(self, tape: Tape, calls: list[Call], span: Span, samples: int = 1) -> None:
        """Note one recorded item, or the items of one `__getitems__`."""
        self.orders.add(tuple(call.site for call in calls))
        times = _item_times(tape, calls, span.started_s, span.ended_s, samples)
        self.items.append(replace(times, core_wait_s=span.core_wait_s))


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
    return ItemTimes(total_s, head_s, augment_s, load_s)


def _spent_s(calls: list[Call]) -> float:
    return sum(call.ended_s - call.started_s for call in calls)
