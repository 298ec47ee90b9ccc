"""Numbers as a result may hold them; whatever else a file has in their place is refused where it is read."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

LARGEST = 1e15
"""What is beyond it was not measured: an estimate divided by nearly nothing."""
MAX_COUNT = 2**53
"""The largest whole number up to which JSON readers agree; statistics calculate with floats."""
_MAX = sys.float_info.max

Number = Annotated[float, Meta(ge=-_MAX, le=_MAX)]
"""A finite number."""
Amount = Annotated[float, Meta(ge=0, le=_MAX)]
"""A finite number that is not negative."""
Quantity = Annotated[int, Meta(ge=-MAX_COUNT, le=MAX_COUNT)] | Number
"""A finite number, which stays whole where it is written as such."""
Count = Annotated[int, Meta(ge=0, le=MAX_COUNT)]
"""A whole number that is not negative, and that a float holds exactly."""


@dataclass(frozen=True)
class Interval:
    """An estimate with its confidence interval."""

    estimate: Number
    low: Number
    high: Number
