"""The names by which the locks reach the package: after a move, only this file changes."""

from bottleneck.analysis import analyse as analysing
from bottleneck.analysis.analyse import analyse, judge
from bottleneck.job.marks import stage
from bottleneck.job.pipeline import Pipeline
from bottleneck.measure import session
from bottleneck.measure.entry import measure
from bottleneck.measure.machine import limits
from bottleneck.measure.options import MeasureOptions
from bottleneck.measure.passes import after_rounds
from bottleneck.measure.ranks.watch import Watch
from bottleneck.results.json import from_json, to_json
from bottleneck.results.records import Judgement

__all__ = [
    "Judgement",
    "MeasureOptions",
    "Pipeline",
    "Watch",
    "after_rounds",
    "analyse",
    "analysing",
    "from_json",
    "judge",
    "limits",
    "measure",
    "session",
    "stage",
    "to_json",
]
