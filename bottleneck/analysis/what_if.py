"""What the job would get if some of its stages took no time: measured, each by itself and some together.

Nothing is added up here. A stage by itself was measured without it; several together where the ladder has an
experiment that serves just these from a cache. In a chain the outermost stages always have one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bottleneck.analysis.gains import sure_gain_of
from bottleneck.analysis.margin import MARGIN
from bottleneck.analysis.ranks import sync_gain
from bottleneck.results.format import LARGEST
from bottleneck.results.names import COLD, COMPUTE, DEVICE, HOST, RAW, SYNC
from bottleneck.results.records import Interval, Rate, Result, Stage

_LEAST = 1e-6


@dataclass(frozen=True)
class WhatIf:
    """Some stages that take no time, and the factor of throughput that this brings: no change to them brings more."""

    stages: tuple[str, ...]
    """None: all of the input."""
    gain: Interval


def what_if(result: Result) -> tuple[WhatIf, ...]:
    """The stages that gain something measurable, the most first; then some together, then all of the input."""
    singles = sorted(_singles(result), key=lambda found: -found.gain.estimate)
    together = _together(result, singles)
    whole = _usable(result.verdict.headroom)
    found = [*singles, *([together] if together is not None else [])]
    return (*found, *([WhatIf((), whole)] if whole is not None and whole.high > 1 else []))


def rate_now(result: Result) -> Rate | None:
    """The throughput of the job as it is."""
    return _coupled(result, RAW)


def _singles(result: Result) -> Iterator[WhatIf]:
    for stage in _inputs(result):
        gain = sure_gain_of(result, stage)
        if gain is not None:
            yield WhatIf((stage.name,), gain)
    shared = _usable(sync_gain(result.evidence.ranks))
    if shared is not None:
        yield WhatIf((SYNC,), shared)


def _together(result: Result, singles: Sequence[WhatIf]) -> WhatIf | None:
    """The costliest two stages, and those beyond them, where the job then gains more than from any single one.

    Where two stages hold the job alike, neither gains anything by itself.
    """
    whole, raw = _usable(result.verdict.headroom), _coupled(result, RAW)
    if whole is None or raw is None:
        return None
    # numpy and scipy, which reports that tell nothing of several stages do without
    from bottleneck.analysis.estimates.statistics import ratio, series
    from bottleneck.analysis.verdict import cost_s

    wanted = {stage.name for stage in sorted(_inputs(result), key=cost_s)[-2:] if cost_s(stage) > 0}
    served, inner = _outermost(result, wanted)
    rate = _coupled(result, inner) if len(served) > 1 and inner not in (DEVICE, HOST, None) else None
    gain = None if rate is None else _usable(ratio(series(raw.blocks), series(rate.blocks)))
    if gain is None:
        return None
    gain = _at_most(gain, whole)
    most = max((single.gain.estimate for single in singles), default=1.0)
    return WhatIf(served, gain) if gain.low > 1 and gain.estimate > MARGIN * most else None


def _outermost(result: Result, wanted: set[str]) -> tuple[tuple[str, ...], str | None]:
    """The fewest stages from the far end that hold all that are wanted, and the experiment that serves them."""
    served: list[str] = []
    for stage in reversed(_inputs(result)):
        served.append(stage.name)
        if len(wanted) > 1 and wanted <= set(served):
            return tuple(served), stage.inner
    return (), None


def _inputs(result: Result) -> list[Stage]:
    """The stages of the input, from the device outwards; that files are not in memory is no part of the job."""
    return [stage for stage in result.stages if stage.name != COMPUTE and stage.outer != COLD]


def _at_most(gain: Interval, whole: Interval) -> Interval:
    """A gain, but never more than that of all input together."""
    return Interval(*(min(one, most) for one, most in zip(_bounds(gain), _bounds(whole), strict=True)))


def _usable(interval: Interval | None) -> Interval | None:
    """An interval of factors that make sense; a file may hold any."""
    if interval is None or not all(_LEAST < bound < LARGEST for bound in _bounds(interval)):
        return None
    return interval if interval.low <= interval.estimate <= interval.high else None


def _bounds(interval: Interval) -> tuple[float, float, float]:
    return interval.estimate, interval.low, interval.high


def _coupled(result: Result, name: str | None) -> Rate | None:
    found = (e.coupled for e in result.experiments if e.name == name and e.available)
    return next((rate for rate in found if rate is not None and 0 < rate.samples_per_s < math.inf), None)
