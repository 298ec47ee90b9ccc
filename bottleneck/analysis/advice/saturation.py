"""Resource that the unmodified job saturates, or none: then too little runs in parallel.

Looks at the experiment `raw` in the evidence `utilisation`, coupled; of many ranks also at their loaders alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from bottleneck.analysis.settings import raw_usage
from bottleneck.results.evidence import Evidence, ExperimentUsage
from bottleneck.results.format import number, percent
from bottleneck.results.records import State

Resource = Literal["device", "quota", "cores", "disk"]

CORES_BUSY = 0.9
"""Share of the cores above which they are used up: between two pieces of work a core is idle for moments."""
THROTTLED = 0.1
"""Share of the quota's periods in which the job was stopped, above which the quota limits it."""
DISK_BUSY = 0.9
DISK_REQUESTS = 4.0
"""A busy disk that does not turn serves more requests at once; with fewer in flight it could still do more."""
DEVICE_BUSY = 0.95
"""A device on which some kernel runs for this share of the time is used up."""
ONE_CORE, MORE_THAN_ONE_CORE = 0.9, 1.2
"""Cores kept busy by a process whose single thread is the limit; its other threads add a little."""


@dataclass(frozen=True)
class Saturation:
    """Resources that the job uses up."""

    resources: tuple[Resource, ...]
    """Resources that are used up, the main limit first; empty if there are none."""
    sentence: str
    """The same in words, with the numbers."""
    cores_busy: float | None = None
    cores: float | None = None
    """Cores that the job may use."""
    cores_other: float | None = None
    """Cores that others keep busy."""

    @property
    def lacks_cores(self) -> bool:
        """Return True if additional workers would find no processor time."""
        return "cores" in self.resources or "quota" in self.resources


def find_saturation(evidence: Evidence, state: State) -> Saturation | None:
    """Return the resources that the job saturates; None if its utilisation was not measured.

    A device that limits the job by the `state` of the verdict is saturated, even if its counters differ.
    """
    raw = raw_usage(evidence)
    if raw is None:
        return None
    raw = _with_others(raw, evidence)
    busy, cores = _cores_busy(raw), _cores(evidence)
    found = dict(_saturated(raw, evidence, state))
    facts = _facts(raw, busy, cores)
    if found:
        sentence = f"Saturated while the job runs: {'; '.join(found.values())}."
    elif not facts:
        return None
    else:
        sentence = f"No resource is saturated while the job runs: {facts}.{_remark(raw, state)}"
    return Saturation(tuple(found), sentence, busy, cores, raw.cores_other)


def contended_resource(evidence: Evidence) -> Literal["cores", "disk"] | None:
    """Return the resource that loaders use up while all ranks of the host load without the train step."""
    usage = raw_usage(evidence, mode="drained")
    if usage is None:
        return None
    found = dict(_saturated(_with_others(usage, evidence), evidence, "input_bound"))
    if "cores" in found or "quota" in found:
        return "cores"
    return "disk" if "disk" in found else None


def _with_others(raw: ExperimentUsage, evidence: Evidence) -> ExperimentUsage:
    """Return the usage, with other processes' cores over the whole diagnosis if blocks were too short."""
    others, cores = evidence.other_load_cores, _cores(evidence)
    if raw.cores_busy is not None or others is None or not cores:
        return raw
    others += evidence.ranks.other_ranks_cores or 0.0
    if raw.cores_main is None or raw.cores_workers is None:
        return raw
    return replace(raw, cores_other=others, cores_busy=min(cores, raw.cores_main + raw.cores_workers + others))


def _cores_busy(raw: ExperimentUsage) -> float | None:
    """Return the busy cores of all processes; those of the job, a lower bound, if others are unknown."""
    busy = raw.cores_busy
    if busy is not None:
        return busy
    main, workers = raw.cores_main, raw.cores_workers
    return None if main is None and workers is None else (main or 0.0) + (workers or 0.0)


def _cores(evidence: Evidence) -> float | None:
    allowed = evidence.utilisation.cores.allowed
    return allowed if allowed is not None else evidence.utilisation.cores.usable


def _saturated(raw: ExperimentUsage, evidence: Evidence, state: State) -> Iterator[tuple[Resource, str]]:
    device = raw.gpu.busy_share
    if state == "device_bound":
        yield "device", "the device" + (f" (busy {percent(device)} of the time)" if device is not None else "")
    elif state == "undecided" and device is not None and device >= DEVICE_BUSY:
        yield "device", f"the device (busy {percent(device)} of the time)"
    quota = _quota(raw, evidence)
    if quota:
        yield "quota", quota
    busy, cores = _cores_busy(raw), _cores(evidence)
    if busy is not None and cores and busy >= CORES_BUSY * cores:
        yield "cores", f"the cores ({_facts(raw, busy, cores)})"
    disk = _disk(raw)
    if disk:
        yield "disk", disk


def _quota(raw: ExperimentUsage, evidence: Evidence) -> str:
    granted = evidence.utilisation.cores.quota
    if not granted or granted <= 0:
        return ""
    throttled = raw.throttled_share
    if throttled is not None and throttled >= THROTTLED:
        return (
            f"the cgroup quota of {_amount(granted)} cores (which stopped the job in "
            f"{percent(throttled)} of its periods)"
        )
    own = (raw.cores_main or 0.0) + (raw.cores_workers or 0.0)
    if own >= CORES_BUSY * granted:
        return f"the cgroup quota of {_amount(granted)} cores (the job uses {_amount(own)})"
    return ""


def _disk(raw: ExperimentUsage) -> str:
    share, requests = raw.disk_busy_share, raw.disk_requests_in_flight
    if share is None or share < DISK_BUSY:
        return ""
    turns = raw.disk_rotational is True
    if not turns and (requests is None or requests < DISK_REQUESTS):
        return ""
    queue = f", {_amount(requests)} requests at once" if requests is not None else ""
    return f"a disk (busy {percent(share)} of the time{queue})"


def _facts(raw: ExperimentUsage, busy: float | None, cores: float | None) -> str:
    if busy is None or not cores:
        return ""
    whose = {"workers": raw.cores_workers, "main process": raw.cores_main, "others": raw.cores_other}
    parts = [f"{name} {_amount(value)}" for name, value in whose.items() if value is not None]
    whole = f"{_amount(busy)} of {_amount(cores)} cores busy"
    return f"{whole}: {', '.join(parts)}" if parts else whole


def _remark(raw: ExperimentUsage, state: State) -> str:
    """Return the conclusion if nothing is used up."""
    if state != "input_bound":
        return ""
    main, workers = raw.cores_main, raw.cores_workers
    if main is not None and ONE_CORE <= main <= MORE_THAN_ONE_CORE and main > (workers or 0.0):
        return " The main process fills one core, and too little runs in parallel."
    return " The loader lacks parallelism."


def _amount(value: float) -> str:
    return number(value, 0 if abs(value - round(value)) < 0.005 else 1 if value >= 9.95 else 2)
