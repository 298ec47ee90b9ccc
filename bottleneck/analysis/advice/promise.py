"""What a piece of advice promises, to be held against what comes of following it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bottleneck.results.records import Advice, Interval

_BEYOND = 1.25
"""Times what came of it that a gain may have been promised, where it is not called an upper bound."""
_NOISE = 1.03


@dataclass(frozen=True)
class Promise:
    """A gain as advised.

    Attributes:
        gain: The factor of throughput.
        at_most: It is called an upper bound: 'at most', 'up to'.
        settings: What `diagnose --set` and `Pipeline.replace` take to follow the advice; empty where it is no setting.
            `torch_threads` is for `torch.set_num_threads` in the main process.
    """

    gain: float
    at_most: bool
    settings: Mapping[str, Any] = field(default_factory=dict)


def promise_of(advice: Advice) -> Promise | None:
    """Return what a piece of advice promises; None where it claims no gain."""
    if advice.gain is None:
        return None
    proposed = advice.evidence.get("proposed")
    return Promise(advice.gain.estimate, claims_at_most(advice), proposed if isinstance(proposed, Mapping) else {})


def claims_at_most(advice: Advice) -> bool:
    """Tell whether a gain is given as an upper bound: that of a stage if free, or an estimate from 1 upwards."""
    gain = advice.gain
    if gain is None:
        return False
    return advice.gain_basis == "measured" or (gain.low == 1.0 and gain.high == gain.estimate)


def is_kept(promise: Promise, realised: Interval) -> bool:
    """Tell whether what came of following an advice bears it out.

    A gain is never over what came of it by more than a quarter, unless it is called an upper bound; and no change that
    was promised to gain makes the job slower.
    """
    if realised.high * _NOISE < 1:
        return False
    return promise.at_most or promise.gain <= _BEYOND * realised.high
