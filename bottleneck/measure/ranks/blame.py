"""Which rank ended the diagnosis: one that fails is felt by all others, as a connection that is closed."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from bottleneck.errors import MeasurementError
from bottleneck.measure.ranks.group import Failed, Group
from bottleneck.measure.ranks.signs import find_ended, read_signs

_NAMING_S, _PAUSE_S = 3.0, 0.1
"""For the rank that failed to say so, where another one feels it first."""
_FROM_OTHERS = re.compile(
    r"closed by peer|reset by peer|broken pipe|remote process|connection (?:refused|closed|was)|nccl|gloo|"
    r"socket (?:error|closed)|timed out waiting|process group",
    re.IGNORECASE,
)
"""What a step raises when another rank is gone."""


def what_ended_all(
    group: Group,
    found: BaseException,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> BaseException:
    """What ended the diagnosis: the failure of the rank that failed first, which the others may have felt only."""
    if group.is_over:
        return found
    felt = isinstance(found, KeyboardInterrupt) or (
        isinstance(found, MeasurementError) and _FROM_OTHERS.search(found.message) is not None
    )
    try:
        failed = _wait_for_name(group, clock, sleep) if felt else group.failed()
        if failed is None or failed.rank == group.rank:
            group.fail(found)
            return found
        group.say_failed(failed)
    except RuntimeError:  # the store has gone with the first rank
        ended = MeasurementError("Rank 0 ended, and with it the store of the job.", "Look at its output.")
        return ended if felt else found
    return found if failed.interrupted and isinstance(found, KeyboardInterrupt) else failed.error()


def _wait_for_name(group: Group, clock: Callable[[], float], sleep: Callable[[float], None]) -> Failed | None:
    """The rank that failed, once that shows; None where it does not in time."""
    until_s = clock() + _NAMING_S
    while True:
        failed = group.failed() or find_ended(group, read_signs(group))
        if failed is not None or clock() >= until_s:
            return failed
        sleep(_PAUSE_S)
