"""Where the locks find what they go through: after a move, only this file changes."""

from bottleneck.analysis.analyse import analyse, judge
from bottleneck.job.marks import stage
from bottleneck.job.pipeline import Pipeline
from bottleneck.measure.options import MeasureOptions
from bottleneck.measure.session import measure
from bottleneck.results.json import from_json, to_json

__all__ = [
    "MeasureOptions",
    "Pipeline",
    "analyse",
    "from_json",
    "judge",
    "measure",
    "stage",
    "to_json",
]
