"""Numbers among what a result says of the machine and of the pipeline: any keys, with values of any type."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def number(part: Mapping[str, Any], key: str) -> float | None:
    """Return a number of the environment or the pipeline; None where it is not known, or none that a float holds."""
    found = part.get(key)
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        return None
    try:
        return found if math.isfinite(found) else None
    except OverflowError:  # a whole number that no float holds
        return None
