"""Requests over the network, from the observation of the workers."""

from __future__ import annotations

from bottleneck.loader.observing.observation import Observation
from bottleneck.results.evidence import NetworkPace, NetworkSeen


def pace_of(seen: Observation) -> NetworkPace:
    """Return the requests that workers sent, and how fast."""
    spent, requests = seen.network, seen.network.requests
    seconds = sum(stage.wall_s for stage in seen.stages.values()) / max(1, seen.workers)
    if not spent.nbytes or seconds <= 0:
        return NetworkPace()
    return NetworkPace(
        num_workers=seen.workers,
        requests=requests,
        samples_per_s=seen.samples / seconds,
        requests_per_s=requests / seconds,
        bytes_per_s=spent.nbytes / seconds,
        in_flight=spent.in_flight_s / seconds,
        first_byte_s=spent.first_byte_s / requests if requests else None,
        transfer_s=spent.transfer_s / requests if requests else None,
        refused=spent.refused,
    )


def describe_network(seen: Observation) -> NetworkSeen:
    """Return the requests of the job's workers; nothing if there were none."""
    spent, whole_s = seen.network, sum(stage.wall_s for stage in seen.stages.values())
    pace = pace_of(seen)
    if pace.requests is None or not seen.samples:
        return NetworkSeen()
    return NetworkSeen(
        stage=max(spent.stages, key=spent.stages.__getitem__, default=None),
        requests_per_sample=spent.requests / seen.samples,
        bytes_per_sample=spent.nbytes / seen.samples,
        connections_per_request=spent.connections / spent.requests if spent.requests else None,
        connecting_s=spent.connecting_s / spent.connections if spent.connections else None,
        share=min(1.0, spent.open_s / whole_s),
        computing_share=spent.computing_s / spent.open_s if spent.open_s else None,
        job=pace,
    )
