"""The money that is lost."""

from __future__ import annotations

import math

from bottleneck.analysis.price import lost_per_hour
from bottleneck.results.format import known, number
from bottleneck.results.records import Result


def lost_money(result: Result) -> str:
    """What an hour of training loses, as one sentence; empty where no price was given."""
    price = result.evidence.gpu_hour_price
    if not known(price) or price <= 0:
        return ""
    lost = lost_per_hour(result, price)
    if lost is None or not all(known(value) for value in (lost.estimate, lost.low, lost.high)):
        return f"What is lost of the {price:.12g} that a GPU hour costs is not known."
    if result.verdict.state == "undecided":
        return f"What is lost of the {price:.12g} that a GPU hour costs is undecided, as the verdict is."
    # Cents where the price is some units, and as many digits of a smaller price.
    decimals = min(9, max(2, 2 - math.floor(math.log10(price))))
    estimate, low, high = (number(value, decimals) for value in (lost.estimate, lost.low, lost.high))
    span = f"{low} to {high}" if lost.low < 0 else f"{low}–{high}"
    return f"Of the {price:.12g} that a GPU hour costs, {estimate} ({span}) is lost in each hour of training."
