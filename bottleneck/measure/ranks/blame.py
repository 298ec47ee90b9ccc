"""Which rank ended the diagnosis: one that fails is felt by all others, as a connection that is closed."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from bottleneck.errors import MeasurementError
from bottleneck.measure.interrupts import ending
from bottleneck.measure.ranks.group import Failed, Group
from bottleneck.measure.ranks.signs import between_signs_s, find_ended, find_silent, read_signs

_SIGNS = 3
"""That a rank has to leave out to count as gone, where others feel that one is."""
_PAUSE_S = 0.1
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
    ending.set()
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
    """The rank that failed, once that shows; None where it does not in time.

    The first rank sees the signs of all; the others wait for what it says.
    """
    before, silent_s = read_signs(group), _SIGNS * between_signs_s(group.size)
    until_s = clock() + (silent_s if group.leads else 2 * silent_s)
    while True:
        now = read_signs(group)
        failed = group.failed() or find_ended(group, now)
        if failed is not None:
            return failed
        if clock() >= until_s:
            return find_silent(group, before, now, silent_s)
        sleep(_PAUSE_S)
