"""Numbers as a result may hold them; whatever else a file has in their place is refused where it is read."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

MAX_COUNT = 2**53
"""The largest whole number up to which JSON readers agree; statistics calculate with floats."""
_LARGEST = sys.float_info.max

Number = Annotated[float, Meta(ge=-_LARGEST, le=_LARGEST)]
"""A finite number."""
Amount = Annotated[float, Meta(ge=0, le=_LARGEST)]
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
