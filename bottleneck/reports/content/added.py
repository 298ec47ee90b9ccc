"""What each stage adds to the step of the job, by the steps of the ladder."""

from __future__ import annotations

from bottleneck.results.format import known
from bottleneck.results.names import RAW
from bottleneck.results.records import Result


def added_times(result: Result) -> dict[str, tuple[float, float]]:
    """Where in a step each stage begins and ends, from the device outwards [s].

    Noise can make an experiment seem faster than the one inside it, or slower than the whole job: each is kept between
    the two, so that no part is negative and all of them are the step. A stage next to an experiment that was not
    measured is left out.
    """
    steps = {e.name: e.coupled.seconds_per_batch for e in result.experiments if e.available and e.coupled is not None}
    steps = {name: step_s for name, step_s in steps.items() if known(step_s) and step_s > 0}
    stages = {stage.outer: stage for stage in result.stages}
    found, inner, end_s = {}, None, 0.0
    for name, step_s in steps.items() if RAW in steps else ():
        begin_s, end_s = end_s, min(steps[RAW], max(end_s, step_s))
        if name in stages and stages[name].inner == inner:
            found[stages[name].name] = begin_s, end_s
        if name == RAW:
            break
        inner = name
    return found
