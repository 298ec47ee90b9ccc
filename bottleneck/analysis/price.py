"""What the lost part of an hour of training costs, in whatever currency the price of a GPU hour is given."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, TypeVar

from bottleneck.errors import UsageError
from bottleneck.results.records import Interval, Result

AnyResult = TypeVar("AnyResult", bound=Result)


def check_price(price: Any) -> float:
    """The price of a GPU hour.

    Raises:
        UsageError: It is not a finite number above zero.
    """
    known = isinstance(price, (int, float)) and not isinstance(price, bool)
    if not known or not 0 < price < math.inf:
        raise UsageError(
            f"The price of a GPU hour must be a number above zero, not {price!r}.", "Write for example 2.5."
        )
    return float(price)


def with_price(result: AnyResult, price: float) -> AnyResult:
    """The result with the price of a GPU hour and what of it is lost among its evidence."""
    lost = lost_per_hour(result, price)
    return replace(result, evidence=replace(result.evidence, gpu_hour_price=price, lost_per_gpu_hour=lost))


def lost_per_hour(result: Result, price: float) -> Interval | None:
    """What the input pipeline costs in an hour of training on one GPU; None without an efficiency.

    The job gets so much of what its device can do, over a whole epoch where that is less: the rest buys nothing.
    """
    efficiency = result.verdict.judged
    if efficiency is None:
        return None
    return Interval(*(price * (1 - share) for share in (efficiency.estimate, efficiency.high, efficiency.low)))
