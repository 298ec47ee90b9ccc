"""The cost of `@bottleneck.stage` in ordinary training, without a diagnosis."""

from __future__ import annotations

import timeit
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import bottleneck
from benchmarks.checks import Check, markdown_table

LIMIT_S = 0.3e-6
CALLS = 1_000
PAIRS = 400


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
    """The time that a mark adds to a call.

    Attributes:
        what: Which kind of call.
        plain_s: Seconds of a call without the mark.
        added_s: Seconds that the mark adds.

    Both are of the shortest of many short series, interleaved: what makes a call last longer than that is the machine
    (the documentation of `timeit` says why, at `Timer.repeat`).
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
    plain_timer, marked_timer = timeit.Timer(without), timeit.Timer(with_mark)
    pairs = [(plain_timer.timeit(CALLS), marked_timer.timeit(CALLS)) for _ in range(PAIRS)]
    plain_s, marked_s = (min(series) / CALLS for series in zip(*pairs, strict=True))
    return Price(what, plain_s, marked_s - plain_s)
