"""Predictions of the workers' clocks: the first stages to try, and the duration of the experiments."""

from __future__ import annotations

from bottleneck.analysis.readings import Readings
from bottleneck.analysis.settings import MARGIN
from bottleneck.analysis.verdict import Choice
from bottleneck.results.names import COMPUTE


def likely_stages(readings: Readings, choice: Choice) -> tuple[str, ...]:
    """Return the stages without which the job gains something by these clocks.

    Those that are named come first, then those with the largest predicted gain.
    """
    named = [name for name in (choice.bottleneck, *choice.contributors) if name not in (None, COMPUTE)]
    gains = {span.name: readings.predicted_gain(span.name) for span in readings.spans}
    promising = [(gain.estimate, name) for name, gain in gains.items() if gain is not None and gain.estimate > MARGIN]
    return tuple(dict.fromkeys((*filter(None, named), *(name for _, name in sorted(promising, reverse=True)))))


def expected_s(readings: Readings) -> dict[str, float]:
    """Return the seconds per batch that these clocks predict of experiments, and of the job without each stage."""
    clocks, bound = readings.clocks, readings.upper_bound
    if clocks is None or bound is None or not clocks.explained:
        return {}
    step_s, batch_s = bound[1].seconds_per_batch, clocks.batch.mean_s
    found, inside = {}, 0.0
    for span in readings.spans:
        share = clocks.share(span.name)
        inside += share
        found[span.outer] = max(step_s, inside * batch_s / clocks.number)
        found[f"without {span.name}"] = max(step_s, (1 - share) * batch_s / clocks.number)
    return found
