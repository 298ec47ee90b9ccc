"""Where the locks find what they go through: after a move, only this file changes."""

from bottleneck.analysis.analyse import analyse, judge
from bottleneck.job.marks import stage
from bottleneck.job.pipeline import Pipeline
from bottleneck.measure import session
from bottleneck.measure.options import MeasureOptions
from bottleneck.measure.session import measure
from bottleneck.measure.trial.worker_trial import TrialResult
from bottleneck.results.json import from_json, to_json

__all__ = [
    "MeasureOptions",
    "Pipeline",
    "analyse",
    "from_json",
    "judge",
    "measure",
    "no_trials",
    "stage",
    "to_json",
]


def no_trials() -> None:
    """Let no workers be tried where a job has none: they are threads, which live in real time."""
    session.try_workers = lambda *_, **__: TrialResult()  # type: ignore[assignment]
