"""Machine that a job needs, from its measured costs: cores, storage, memory, and the price of a million samples."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bottleneck.analysis.plan.fit import Fit, cores_of, fit, on_cpu, usage_of
from bottleneck.analysis.ranks import cores_of_host, ranks_per_host
from bottleneck.analysis.settings import THIS_TOOL, over_0, reads_of, unit_of
from bottleneck.results.format import bare, count, percent, percent_interval, plural
from bottleneck.results.names import DEVICE, RAW
from bottleneck.results.plan import PerSample, PlannedMachine, PlanResult, Resource
from bottleneck.results.records import SCHEMA_VERSION, Interval, Result

_SHOWN = (0.25, 0.5, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
"""Cores per GPU, of which a plan shows those between a sixth of the need and half more than it."""


@dataclass(frozen=True)
class Asked:
    """The requested machine; a value of None is that of the first result."""

    gpus: int | None = None
    cores: float | None = None
    device_speed: float = 1.0
    storage_bytes_per_s: float | None = None
    gpu_hour_price: float | None = None
    core_hour_price: float | None = None

    def price(self, gpus: float, cores: float, samples_per_s: float) -> float | None:
        """Price of a million samples; None without prices."""
        prices = self.gpu_hour_price, self.core_hour_price
        an_hour = gpus * (prices[0] or 0.0) + cores * (prices[1] or 0.0)
        return None if prices == (None, None) or not samples_per_s else an_hour / 3600 * 1e6 / samples_per_s


def plan(results: Sequence[Result], labels: Sequence[str], asked: Asked) -> PlanResult:
    """Plan the machine that a job needs.

    Raises:
        UsageError: As `fit`.
    """
    found, first = fit(results, labels, asked.device_speed), results[0]
    job, payload, memory = found.jobs[0], over_0(first.evidence.payload.bytes), first.evidence.utilisation.workers
    reads = reads_of(first.evidence, RAW)
    sample = PerSample(
        worker_cpu_s=found.interval((each.cpu_s for each in found.jobs), misfit=0.0),
        worker_wait_s=found.interval((each.wait_s for each in found.jobs), misfit=0.0),
        main_cpu_s=job.main_cpu_s,
        read_bytes=max(filter(None, (reads.asked_bytes_per_sample, reads.storage_bytes_per_sample)), default=None),
        copied_bytes=None if payload is None else payload / job.batch,
    )
    gpus = asked.gpus or max(1, ranks_per_host(first.ranks))
    cores = asked.cores or cores_of_host(first.ranks) or cores_of(first) or 1.0
    delivers, read = asked.storage_bytes_per_s, sample.read_bytes
    storage = delivers / read if delivers is not None and read else math.inf
    machine = _machine(found, asked, gpus, cores, storage)
    shown = sorted({cores / gpus, *_shown(found.cores.estimate)})
    own_bytes = None if memory.private_bytes is None else max(0.0, memory.private_bytes - (memory.cache_bytes or 0))
    return PlanResult(
        schema_version=SCHEMA_VERSION,
        kind="plan",
        tool=THIS_TOOL,
        environment=first.environment,
        pipeline=first.pipeline,
        sources=found.sources,
        sentence=_sentence(machine, found.cores, unit_of(first)),
        assumptions=tuple(_assumptions(found, results, asked)),
        warnings=tuple(_warnings(found, first, asked, sample)),
        device_samples_per_s=found.interval((1 / each.step_s for each in found.jobs), misfit=0.0),
        per_sample=sample,
        cores_per_gpu=found.cores,
        workers_per_gpu=job.workers_for(found.cores.estimate),
        worker_bytes=own_bytes / memory.count if own_bytes is not None and memory.count else None,
        shm_bytes_per_worker=None if payload is None else payload * job.prefetch,
        curve=tuple(_machine(found, asked, 1, each, storage / gpus) for each in shown),
        machine=machine,
        rate_unit=unit_of(first),
    )


def _shown(need: float) -> Iterator[float]:
    for cores in (cores for cores in _SHOWN if cores >= need / 6):
        yield cores
        if cores >= 1.5 * need:
            return


def _machine(found: Fit, asked: Asked, gpus: int, cores: float, storage: float) -> PlannedMachine:
    """Return the plan of a machine whose storage supplies so many samples per second."""
    job, need = found.jobs[0], found.cores
    workers = job.workers_for(cores / gpus)
    rate, efficiency = found.rates(workers, cores / gpus, storage / gpus)
    used: dict[Resource, float] = {
        "device": 1.0,
        "cores": need.estimate * gpus / cores,
        "storage": gpus * job.fed_per_s / storage,
    }
    fed = (min(cores / one, storage / job.fed_per_s) for one in (need.estimate, need.high, need.low))
    return PlannedMachine(
        gpus=gpus,
        cores=cores,
        workers=gpus * workers,
        samples_per_s=rate.mapped(lambda of_one: gpus * of_one),
        efficiency=efficiency,
        used_up_first=max(used, key=used.__getitem__),
        gpus_fed=Interval(*(math.floor(gpus_of_one + 1e-6) for gpus_of_one in fed)),
        price_per_million=asked.price(gpus, cores, gpus * rate.estimate),
    )


# --- in words -----------------------------------------------------------------------------------------------

_COMPUTES = 0.5
"""Part of a core, or of what others left of one, that a train step on the CPU keeps busy while it computes."""
_MIN_LEFT, _CROWD = 0.25, 0.25
_MISFIT = 0.1
_ALL = 0.97


def amount(cores: float) -> str:
    """Return a number of cores, with as many decimals as it needs."""
    return bare(round(cores, 2 if cores < 1 else 1 if cores < 9.5 else 0))


def cores_needed(need: str, here: float) -> str:
    """Return a sentence on the cores that keep the device busy, and those that there are."""
    are = "is" if here == 1 else "are"
    return f"This job needs {need} cores per GPU to keep its device busy; there {are} {amount(here)} per GPU."


def _sentence(machine: PlannedMachine, need: Interval, unit: str) -> str:
    needed = f"{amount(need.estimate)} ({amount(need.low)}–{amount(need.high)})"
    fed, (get, they) = machine.gpus_fed, ("gets", "it") if machine.gpus == 1 else ("get", "they")
    span = "" if fed.low == fed.high else f" ({fed.low:.0f}–{fed.high:.0f})"
    return (
        f"{cores_needed(needed, machine.cores / machine.gpus)} {plural(machine.gpus, 'GPU')} with "
        f"{amount(machine.cores)} {'core' if machine.cores == 1 else 'cores'} {get} "
        f"{count(machine.samples_per_s.estimate)} {unit}, {percent_interval(machine.efficiency)} of what {they} can "
        f"do; used up first: the {machine.used_up_first}. GPUs that such a machine keeps busy: "
        f"{fed.estimate:.0f}{span}."
    )


def _assumptions(found: Fit, results: Sequence[Result], asked: Asked) -> Iterator[str]:
    share = found.jobs[0].device_share
    scaled = "its whole step, what the main process does for it included"
    if share < 1:
        scaled = f"the {percent(share)} of its step in which it computed"
    faster = "as fast as the device that was measured"
    if asked.device_speed != 1:
        faster = f"{bare(asked.device_speed)} times {faster} in {scaled}"
    storage = "" if asked.storage_bytes_per_s is None else ", and every sample is read from the storage"
    yield (
        f"Assumed: a GPU is {faster}, a sample takes the CPU time that was measured on any number of cores, the work "
        f"divides evenly over them, and num_workers is set as given{storage}."
    )
    if len(results) > 1:
        within = percent(found.misfit)
        yield f"Fitted to {len(results)} results of this job; the throughput of each is predicted within {within}."
    used = usage_of(results[0], DEVICE, "coupled")
    cores, left = used.cores_main or 0.0, (cores_of(results[0]) or 1.0) - (used.cores_other or 0.0)
    if on_cpu(results[0]) and cores >= _COMPUTES * min(1.0, max(_MIN_LEFT, left)):
        yield (
            f"The train step that was measured computes on the CPU: its {amount(cores)} cores count as the job's. A "
            "GPU would leave them to the workers."
        )
    elif on_cpu(results[0]):
        yield f"The train step that was measured leaves the CPU idle ({amount(cores)} cores busy), as a GPU does."


def _warnings(found: Fit, first: Result, asked: Asked, sample: PerSample) -> Iterator[str]:
    if asked.storage_bytes_per_s is not None and sample.read_bytes is None:
        yield "Reads per sample were not observed, so --storage limits nothing."
    fed = found.jobs[0].fed_per_s * found.jobs[0].step_s
    if fed < _ALL:
        yield (
            f"Cores alone bring no more than {percent(fed)} of what the device can do: receiving batches takes the "
            "rest of the loop's time, however many are ready."
        )
    cores = cores_of(first) or 1.0
    others = min(cores, usage_of(first, RAW, "coupled").cores_other or 0.0)
    if others >= _CROWD * cores:
        yield (
            f"Other processes kept {amount(others)} of {amount(cores)} cores busy during the measurement, and may have "
            "slowed a train step on the CPU: measure again on an idle machine."
        )
    if found.misfit > _MISFIT:
        yield (
            f"The plan is {percent(found.misfit)} off for a setting that was measured, so its intervals are wider: "
            "measure again on an idle machine."
        )
