"""A trial after the rounds: more workers than the job has read over the network for a moment.

The times of the requests alone do not say whether the source would answer more of them at once. Latency divides among
them; a line of a certain width, or a server that counts requests, does not.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import psutil
from torch.utils.data import DataLoader

from bottleneck.job.loader_args import rebuild_loader
from bottleneck.loader.switched import SwitchedLoader
from bottleneck.measure.evidence.network import pace_of
from bottleneck.measure.evidence.stages import MAX_OBSERVING_S, observe
from bottleneck.measure.ladder import Ladder
from bottleneck.measure.ledger import Ledger
from bottleneck.measure.machine.environment import free_memory_bytes
from bottleneck.results.evidence import NetworkPace

_MOSTLY = 0.5
"""Share of the workers' time with an open request above which more requests at once are worth a trial."""
_SPARE = 1.1
"""Supply of the loader over the step's demand, for its uneven batches."""
_MAX_TRIED, _MAX_TIMES = 16, 4
"""Workers of a trial, and how many times as many as the job has."""
_MAX_START_S, _MAX_BATCH_S = 5.0, 2.0
"""Times of the first batch, and of later ones, above which a trial takes too long."""
_BATCHES = 4
"""Batches of each worker, typically, besides those of the observation."""
_STEADY_S = 0.5
"""Seconds for measuring the rate of the workers, or a batch of each."""
_HANG_S = 60.0
_MEMORY_SHARE = 0.8


def expected_s(ledger: Ledger, workers: int, batch_s: float) -> float:
    """Return the approximate time of a trial of a job with a number of workers; 0 if there is nothing to learn from it.

    Without workers, there is none: forked ones would share the open connections of the main process.
    """
    seen, start_s = ledger.evidence.network, ledger.evidence.first_batch_s or 0.0
    worker_s = batch_s * workers
    if not workers or (seen.share or 0.0) < _MOSTLY or seen.job.refused or (seen.computing_share or 0.0) > _MOSTLY:
        return 0.0
    return 0.0 if max(start_s / _MAX_START_S, worker_s / _MAX_BATCH_S) > 1 else start_s + _BATCHES * worker_s + 1.0


def workers_to_try(ledger: Ledger, loader: SwitchedLoader) -> int:
    """Return the workers of a trial; 0 if there is nothing to learn from it, or no room for it."""
    workers, shards = loader.num_workers, ledger.evidence.loader.shards or _MAX_TRIED
    raw_s, device_s = ledger.seconds_per_batch(Ladder.raw), ledger.seconds_per_batch(Ladder.device)
    if not raw_s or not device_s or not expected_s(ledger, workers, raw_s):
        return 0
    wanted = max(2 * workers, math.ceil(_SPARE * workers * raw_s / device_s))
    tried = int(min(wanted, _MAX_TIMES * workers, _MAX_TRIED, shards))
    has_room = tried * _memory_of_one(loader.workers) < _MEMORY_SHARE * free_memory_bytes()
    return tried if tried >= 2 * workers and has_room else 0


def _memory_of_one(pids: tuple[int, ...]) -> float:
    try:
        return max(float(psutil.Process(pid).memory_full_info().uss) for pid in pids)
    except (psutil.Error, ValueError):
        return math.inf


def try_more(loader: DataLoader[Any], workers: int, seed: int, clock: Callable[[], float]) -> NetworkPace:
    """Let as many workers make batches for a moment, in a loader that is like the user's, and return their pace.

    Their rate is measured before they are observed: at a switch some of them rest, and the source catches up.

    Raises:
        MeasurementError: The user's code or a worker failed.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of more workers than cores: these wait
        more = SwitchedLoader(rebuild_loader(loader, {"num_workers": workers}), (), seed, _HANG_S)
        try:
            more.start()
            rate = _steady_rate(more, clock)
            return _at_rate(pace_of(observe(more, MAX_OBSERVING_S, clock)), rate)
        finally:
            more.close()


def _steady_rate(loader: SwitchedLoader, clock: Callable[[], float]) -> float:
    """Return the samples per second of workers once each has made a batch, over whole turns of them."""
    for _ in range(loader.num_workers):
        loader.next_batch()
    began_s, samples = clock(), 0
    while not samples or clock() - began_s < _STEADY_S:
        samples += sum(loader.next_batch()[1] for _ in range(loader.num_workers))
    return samples / (clock() - began_s)


def _at_rate(pace: NetworkPace, samples_per_s: float) -> NetworkPace:
    """Return a pace with another rate of samples, and of what is read for them."""
    if not pace.samples_per_s or pace.requests_per_s is None or pace.bytes_per_s is None:
        return pace
    factor = samples_per_s / pace.samples_per_s
    return replace(
        pace,
        samples_per_s=samples_per_s,
        requests_per_s=factor * pace.requests_per_s,
        bytes_per_s=factor * pace.bytes_per_s,
    )
