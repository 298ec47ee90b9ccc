"""The answer that the blocks so far give: state, efficiency, and which stage holds the job."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bottleneck.analysis.contradictions import Contradiction, find_contradiction
from bottleneck.analysis.estimates.attribution import attribute, with_family_gains
from bottleneck.analysis.estimates.costs import Costs
from bottleneck.analysis.estimates.epochs import Epoch, find_epoch, log_epoch_efficiency, surely_lower
from bottleneck.analysis.estimates.series import Readings
from bottleneck.analysis.estimates.statistics import Spread
from bottleneck.analysis.settings import unit_of
from bottleneck.analysis.stopping import further_rounds, state
from bottleneck.analysis.verdict import Choice, choose, choose_among_ranks
from bottleneck.results.records import Interval, JudgedBy, Result, Stage, State


@dataclass(frozen=True)
class Answer:
    """What a measurement says of the job as a whole."""

    state: State
    stages: tuple[Stage, ...]
    choice: Choice
    efficiency: Interval | None
    further_rounds: int | None
    steady_state: State
    """The state of the job between the edges of its epochs."""
    epoch: Epoch | None = None
    epoch_efficiency: Interval | None = None
    judged_by: JudgedBy = "efficiency"
    contradiction: Contradiction | None = None


def find_answer(measurement: Result, readings: Readings, costs: Costs) -> Answer:
    """The answer; beside a contradiction it has no state, no name and nothing that is derived from the two."""
    stages = attribute(readings, costs)
    contradiction = find_contradiction(readings, measurement.evidence.loader.forgotten, unit_of(measurement))
    if contradiction is not None:
        bare = tuple(replace(s, exposed_share=None, gain_if_free=None, finding="undecided") for s in stages)
        return Answer("undecided", bare, Choice(), None, None, "undecided", contradiction=contradiction)
    log_efficiency = readings.log_efficiency()
    epoch = find_epoch(readings, measurement.evidence, measurement.pipeline)
    log_epoch = None if epoch is None else log_epoch_efficiency(readings, epoch)
    by_epoch = epoch is not None and log_epoch is not None and surely_lower(readings, epoch)
    deciding = log_epoch if by_epoch else log_efficiency
    steady, present = _state(log_efficiency), _state(deciding)
    if present == "input_bound" and steady != "input_bound":
        choice = Choice(basis="epoch")
    else:
        choice = choose(present, with_family_gains(readings, costs, stages), costs)
    together, efficiency = measurement.evidence.ranks, share(deciding)
    return Answer(
        state=present,
        stages=stages,
        choice=choose_among_ranks(choice, together, present, efficiency, stages),
        efficiency=share(log_efficiency),
        further_rounds=further_rounds(deciding),
        steady_state=steady,
        epoch=epoch,
        epoch_efficiency=share(log_epoch),
        judged_by="epoch_efficiency" if by_epoch else "efficiency",
    )


def _state(log_efficiency: Spread | None) -> State:
    return state(None if log_efficiency is None else log_efficiency.exponentiated())


def share(log_efficiency: Spread | None) -> Interval | None:
    """An efficiency, of which no part is over one: more than that is noise, since it was no contradiction."""
    if log_efficiency is None:
        return None
    found = log_efficiency.exponentiated()
    return Interval(min(found.estimate, 1.0), min(found.low, 1.0), min(found.high, 1.0))
