"""Conclusions from monitored waits: the maximum lost share of time, and the need for a diagnosis."""

from __future__ import annotations

from bottleneck.results.format import duration, long_duration, percent, plural
from bottleneck.results.monitor import Monitored

SETTLED_S = 60.0
"""Seconds over which waits are judged while the job runs."""
MIN_SHARE = 0.05
"""Share of the loop's time above which a diagnosis is due: below that a job is not worth changing."""


def why_due(passed_s: float, wait_s: float) -> str | None:
    """Return the sentence that recommends a diagnosis; None if the waits in the time that passed do not justify one."""
    share = wait_s / passed_s if passed_s > 0 else 0.0
    if share <= MIN_SHARE:
        return None
    return (
        f"The loop waited for its input {percent(min(1.0, share))} of {long_duration(passed_s)}; at most so much is "
        "lost. `bottleneck run` with the same script says why, and what fixing it would gain."
    )


def sentence(run: Monitored) -> str:
    """Return the answer for a monitored run."""
    found = run.training
    batches = sum(one.batches for one in found)
    if not batches:
        return "No batch was seen of a DataLoader of PyTorch's, nor of `bottleneck.watch`."
    longest = f"; the longest wait was {duration(run.worst[0].seconds)}" if run.worst else ""
    return (
        f"Watched, not tried: over {plural(batches, 'batch')} the loop waited for its input "
        f"{percent(run.share(found))} of the time, which is at most lost{longest}."
    )


def is_due(run: Monitored) -> bool:
    """Return True if the run should be diagnosed."""
    return (run.share(run.training) or 0.0) > MIN_SHARE
