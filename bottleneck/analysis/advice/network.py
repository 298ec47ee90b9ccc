"""Storage behind a network: its latency, its bandwidth, a limit of its requests, or a client that computes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from bottleneck.analysis.advice.case import Case, Suggestion, rule
from bottleneck.analysis.advice.workers import limit_of_cores_s
from bottleneck.analysis.network import NetworkLimit, find_network_limit
from bottleneck.analysis.parts import share_of
from bottleneck.results.format import count, duration, frequency, gain, percent, plural, size
from bottleneck.results.names import stages_in
from bottleneck.results.records import Stage

_SPARE = 1.1
"""Supply of the loader over the step's demand, for its uneven batches."""
_STREAM = 0.05
"""Requests of a sample below which many samples are read by one."""
_MAX_LOCKED = 0.5
"""Share of the time for which threads of a worker may compute together, before they wait for its lock."""
_THREADS = (
    "def __getitems__(self, indices): return list(pool.map(self.__getitem__, indices)), with "
    "pool = concurrent.futures.ThreadPoolExecutor({threads}) at module level"
)
_NEARBY = "keep a copy nearby (a local disk, or storage in the same zone)"


def _limited(case: Case, *names: str) -> tuple[Stage, NetworkLimit] | None:
    """Return the stage that the network limits and the limit, if it has one of the names, and limits the job."""
    limit, sends = find_network_limit(case.evidence), case.evidence.network.stage
    if limit is None or limit.name not in names or sends is None:
        return None
    stage = next((stage for stage in case.suspects if sends == stage.name or sends in stages_in(stage.name)), None)
    return None if stage is None else (stage, limit)


def _requests(case: Case) -> str:
    """Return a sentence on the requests of a sample."""
    seen = case.evidence.network
    per_sample, nbytes = seen.requests_per_sample or 0.0, size(seen.bytes_per_sample)
    if per_sample < _STREAM:
        return f"A sample takes {nbytes} of an answer that goes on from sample to sample. "
    return f"A sample takes {nbytes} in {frequency(per_sample)} request{'' if per_sample == 1 else 's'}. "


def _numbers(case: Case) -> dict[str, Any]:
    """Return the evidence of any limit."""
    seen = case.evidence.network
    return {
        "requests_per_sample": seen.requests_per_sample,
        "bytes_per_sample": seen.bytes_per_sample,
        "first_byte_s": seen.job.first_byte_s,
        "transfer_s": seen.job.transfer_s,
        "in_flight": seen.job.in_flight,
    }


def _tried(case: Case, limit: NetworkLimit) -> dict[str, Any]:
    """Return the evidence of a trial."""
    return {**_numbers(case), "tried_workers": limit.tried, "speedup": limit.speedup}


@rule("storage-latency")
def _latency(case: Case) -> Iterator[Suggestion]:
    """Advise more requests at once if each waits, and more of them are answered as fast."""
    found = _limited(case, "latency")
    if found is None or not case.loader_s or not case.has_loader:
        return
    (stage, limit), job, more = found, case.evidence.network.job, case.evidence.network.more
    waits = (
        f"A request waits {duration(job.first_byte_s)} for its first byte, and {duration(job.transfer_s)} for the "
        f"rest; {count(job.in_flight)} are open at once in {plural(limit.workers, 'worker')}. "
    )
    workers = max(limit.workers + 1, limit.workers_for(_SPARE * case.loader_s / case.device_s))
    at_once = math.ceil((job.in_flight or 0.0) / limit.workers * workers)
    rest = "" if limit.scales else " Then the source is at its limit."
    by_one = (job.transfer_s or 0.0) > (job.first_byte_s or 0.0)
    what = "the speed of single connections" if by_one else "the latency of the network"
    yield Suggestion(
        stage=stage.name,
        title=f"Read more at once: {stage.name} waits for {what}",
        why=f"{_requests(case)}{waits}In a trial, {limit.tried} workers had {count(more.in_flight)} open, the first "
        f"byte came after {duration(more.first_byte_s)}, and they read {gain(limit.speedup or 1.0)} as fast.{rest}",
        how=f"about {plural(at_once, 'request')} at once: num_workers={workers}{_in_threads(case, limit, workers)}",
        evidence={**_tried(case, limit), "requests_at_once": at_once, "workers": workers},
        gain=gain_of_more_at_once(case, limit, workers),
        cause=True,
    )


def _in_threads(case: Case, limit: NetworkLimit, workers: int) -> str:
    """Return a remark on threads in each worker instead; empty if its interpreter's lock would limit them."""
    threads, seen = math.ceil(workers / limit.workers), case.evidence.network
    if threads * (seen.computing_share or 0.0) * (seen.share or 0.0) > _MAX_LOCKED or case.evidence.loader.iterable:
        return ""
    threaded = f", or {plural(threads, 'thread')} in each worker"
    return threaded if case.evidence.loader.fetches_batches else f"{threaded}: {_THREADS.format(threads=threads)}"


def gain_of_more_at_once(case: Case, limit: NetworkLimit, workers: float) -> float:
    """Return the largest gain of a job from more workers that read over the network."""
    speedup = limit.speedup_of(workers)
    fed_s = max(case.fed_s or case.device_s, case.device_s, limit_of_cores_s(case), 1e-9)
    return case.at_most_headroom(min(speedup, case.step_s / max(fed_s, case.loader_s / max(speedup, 1e-9))))


@rule("storage-bandwidth")
def _bandwidth(case: Case) -> Iterator[Suggestion]:
    """Advise fewer bytes if more requests at once get no more bytes in all."""
    found = _limited(case, "bandwidth")
    if found is None:
        return
    (stage, limit), job, more = found, case.evidence.network.job, case.evidence.network.more
    yield Suggestion(
        stage=stage.name,
        title=f"Read fewer bytes: {stage.name} waits for the bandwidth of the network",
        why=f"{_requests(case)}All workers together receive {size(job.bytes_per_s)}/s. In a trial, {limit.tried} "
        f"workers instead of {limit.workers} received {size(more.bytes_per_s)}/s, and the bytes after the first took "
        f"{duration(more.transfer_s)} instead of {duration(job.transfer_s)}: more requests at once do not help.",
        how=f"store samples smaller or compressed, and request only the part that is kept; or {_NEARBY}",
        evidence={**_tried(case, limit), "bytes_per_s": job.bytes_per_s},
        frees_stage=True,
        cause=True,
    )


@rule("storage-requests")
def _number_of_requests(case: Case) -> Iterator[Suggestion]:
    """Advise fewer requests if the source refuses some, or lets more of them at once wait for longer."""
    found = _limited(case, "requests")
    if found is None:
        return
    (stage, limit), job, more = found, case.evidence.network.job, case.evidence.network.more
    if job.refused:
        what = f"The source refused {percent(job.refused / (job.requests or 1))} of them (status 429 or 503)"
    else:
        what = (
            f"The source answers {count(job.requests_per_s)} a second. In a trial, {limit.tried} workers instead of "
            f"{limit.workers} got {count(more.requests_per_s)} a second, and waited {duration(more.first_byte_s)} for "
            f"the first byte instead of {duration(job.first_byte_s)}"
        )
    yield Suggestion(
        stage=stage.name,
        title=f"Send fewer requests: the source of {stage.name} limits their number",
        why=f"{_requests(case)}{what}: more requests at once do not help.",
        how="put many samples into one object, and read it as a whole (tar shards with WebDataset, row groups of "
        f"Parquet); raise the limit of the source; or {_NEARBY}",
        evidence={**_tried(case, limit), "requests_per_s": job.requests_per_s, "refused": job.refused},
        frees_stage=True,
        cause=True,
    )


@rule("client-computes")
def _client(case: Case) -> Iterator[Suggestion]:
    """Advise a cheaper client if a worker computes while its requests are open, instead of waiting for them."""
    found, seen = _limited(case, "client"), case.evidence.network
    waiting = None if seen.computing_share is None else share_of(1.0, seen.computing_share, case.evidence)
    if found is None or waiting is None or seen.share is None:
        return
    stage = found[0]
    yield Suggestion(
        stage=stage.name,
        title=f"Let the client compute less: {stage.name} does not wait for the network",
        why=f"{_requests(case)}While requests are open, a worker computes for {percent(seen.computing_share)} of the "
        "time. Threads within a sample would share its interpreter's lock. The gain assumes that this takes no time.",
        how="read the whole answer in one call, or in pieces of a MiB, and process it afterwards by code in C (numpy, "
        "torch.frombuffer); worker processes, not threads, as many as there are cores",
        evidence={**_numbers(case), "computing_share": seen.computing_share, "share": seen.share},
        gain=case.gain_of_part(stage, (1 - waiting) * seen.share),
        cause=True,
    )


RULES = (_latency, _bandwidth, _number_of_requests, _client)
