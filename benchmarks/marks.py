"""What `@bottleneck.stage` costs in ordinary training, where nothing is diagnosed."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import bottleneck
from benchmarks.checks import Check, markdown_table

LIMIT_S = 0.3e-6
CALLS = 200_000
PAIRS = 15


def plain(image: Any, size: int = 3) -> Any:
    """A function that does nothing, so that only the call is measured."""
    return image


marked = bottleneck.stage("price of a mark")(plain)


class Dataset:
    """The same for methods."""

    def plain(self, image: Any, size: int = 3) -> Any:
        """A method that does nothing."""
        return image

    marked = bottleneck.stage("price of a marked method")(plain)


@dataclass(frozen=True)
class Price:
    """What a mark adds to a call.

    Attributes:
        what: Which kind of call.
        plain_s: Seconds of a call without the mark.
        added_s: Seconds that the mark adds: the median of interleaved pairs.
    """

    what: str
    plain_s: float
    added_s: float


def measure_prices() -> list[Price]:
    """Measure calls of a function and of a method, by position and by keyword, marked and not."""
    data = Dataset()
    kinds: list[tuple[str, Callable[[], Any], Callable[[], Any]]] = [
        ("function", lambda: plain(1), lambda: marked(1)),
        ("function, by keyword", lambda: plain(1, size=2), lambda: marked(1, size=2)),
        ("method", lambda: data.plain(1), lambda: data.marked(1)),
    ]
    return [_measure(what, without, with_mark) for what, without, with_mark in kinds]


def check_prices(prices: list[Price]) -> Check:
    """The bar on the price of a mark."""
    dearest = max(prices, key=lambda price: price.added_s)
    return Check(
        "`@bottleneck.stage` while nothing is diagnosed",
        f"≤ {LIMIT_S * 1e6:.1f} µs a call",
        f"at most {dearest.added_s * 1e6:.2f} µs ({dearest.what})",
        dearest.added_s <= LIMIT_S,
    )


def prices_table(prices: list[Price]) -> str:
    """The prices in markdown."""
    rows = [(p.what, f"{p.plain_s * 1e6:.3f} µs", f"{p.added_s * 1e6:+.3f} µs") for p in prices]
    return markdown_table(("call", "without", "the mark adds"), rows)


def _measure(what: str, without: Callable[[], Any], with_mark: Callable[[], Any]) -> Price:
    pairs = []
    for number in range(PAIRS):
        if number % 2:
            marked_s = _seconds_per_call(with_mark)
            pairs.append((_seconds_per_call(without), marked_s))
        else:
            pairs.append((_seconds_per_call(without), _seconds_per_call(with_mark)))
    added_s = statistics.median(marked_s - plain_s for plain_s, marked_s in pairs)
    return Price(what, statistics.median(plain_s for plain_s, _ in pairs), added_s)


def _seconds_per_call(function: Callable[[], Any]) -> float:
    calls = range(CALLS // PAIRS)
    start = time.perf_counter()
    for _ in calls:
        function()
    return (time.perf_counter() - start) / len(calls)
