"""The limit of storage behind a network: latency, bandwidth, a number of requests, or the client that computes.

The times of requests alone do not tell these apart: a server that counts requests lets them wait for the first byte as
a distant one does. More of them at once, in a trial, do: only a distant source then answers more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from bottleneck.analysis.parts import share_of
from bottleneck.analysis.settings import MOSTLY, over_0
from bottleneck.results.evidence import Evidence, NetworkPace

Limit = Literal["latency", "bandwidth", "requests", "client"]

_SCALES = 0.75
"""Speed-up over the factor of workers above which the source has answered all of them as fast."""
_FASTER = 1.25
"""Speed-up by more workers below which the source gives no more than it gave to those of the job."""
_REFUSED = 0.02
"""Share of refused requests above which the source limits their number."""


@dataclass(frozen=True)
class NetworkLimit:
    """Limit of the workers' reading, and the effect of more workers."""

    name: Limit
    speedup: float | None = None
    """Samples a second of all workers in the trial over those of the job's; None if not tried."""
    workers: int = 0
    tried: int = 0
    """Workers of the job, and of the trial."""

    @property
    def is_shared(self) -> bool:
        """Return True if more requests at once get no more in all."""
        return self.name in ("bandwidth", "requests")

    @property
    def scales(self) -> bool:
        """Return True if the workers of the trial were not slower than those of the job."""
        return self.speedup is not None and self.speedup >= _SCALES * self.tried / self.workers

    def speedup_of(self, workers: float) -> float:
        """Return how many times as fast as those of the job so many workers read, at most."""
        if self.speedup is None:
            return math.inf
        if workers > self.tried and self.scales:
            return self.speedup * workers / self.tried
        return min(self.speedup, workers / self.workers)

    def workers_for(self, speedup: float) -> int:
        """Return the number of workers that read so many times as fast, or as many as the source can feed."""
        if self.speedup is None or not self.scales:
            return math.ceil(self.workers * min(speedup, self.speedup or math.inf) - 1e-6)
        each = min(1.0, self.speedup * self.workers / self.tried)
        return math.ceil(self.workers * speedup / each - 1e-6)


def find_network_limit(evidence: Evidence) -> NetworkLimit | None:
    """Return the limit; None if requests do not take most of the workers' time, or if only a trial would tell."""
    seen, job, more = evidence.network, evidence.network.job, evidence.network.more
    workers = over_0(job.num_workers)
    if not workers or not over_0(job.bytes_per_s):
        return None
    if (over_0(job.refused) or 0) > _REFUSED * (job.requests or 0):  # between two of them, a client waits without any
        return NetworkLimit("requests", workers=int(workers))
    if (over_0(seen.share) or 0.0) < MOSTLY or seen.computing_share is None:
        return None
    waiting = share_of(1.0, max(0.0, seen.computing_share), evidence)
    speedup = _ratio(more.samples_per_s, job.samples_per_s)
    tried = over_0(more.num_workers)
    if speedup is None or not tried or tried <= workers:
        speedup, tried = None, 0
    if waiting is not None and waiting < 1 - MOSTLY:
        name: Limit = "client"
    elif speedup is None:
        return None
    elif speedup >= _FASTER:
        name = "latency"
    elif _fill_the_cores(evidence, workers):
        return None
    else:
        name = _shared_limit(job, more)
    return NetworkLimit(name, speedup, int(workers), int(tried))


def _ratio(more: float | None, job: float | None) -> float | None:
    above, below = over_0(more), over_0(job)
    return above / below if above and below else None


def _fill_the_cores(evidence: Evidence, workers: float) -> bool:
    """Return True if more workers would have found no core, regardless of the source."""
    cores, seen = over_0(evidence.utilisation.cores.usable), evidence.network
    busy = (seen.computing_share or 0.0) * (seen.share or 0.0) * workers
    return cores is not None and _FASTER * busy > cores


def _shared_limit(job: NetworkPace, more: NetworkPace) -> Limit:
    """Return what more requests at once share, by the part of a request that became longer."""
    if more.refused:
        return "requests"
    if job.first_byte_s is None or more.first_byte_s is None:  # an answer that goes on from sample to sample
        return "bandwidth"
    first_s = more.first_byte_s - job.first_byte_s
    transfer_s = (more.transfer_s or 0.0) - (job.transfer_s or 0.0)
    return "bandwidth" if transfer_s > first_s else "requests"
