"""Costs of a sample of a job, from one result or several, and how well they predict the measured throughput."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, replace

from bottleneck.analysis.parts import waiting_share
from bottleneck.analysis.plan.model import Job, predict
from bottleneck.analysis.settings import over_0, positive, raw_usage
from bottleneck.errors import UsageError
from bottleneck.results.evidence import ExperimentUsage
from bottleneck.results.names import AFTER_COLLATE, DEVICE, RAW, is_cpu
from bottleneck.results.plan import PlanSource
from bottleneck.results.records import Interval, Rate, Result, blocks_of

_MAX_CV, _USUAL_CV, _USUAL_PREFETCH = 0.5, 0.1, 2.0
_LARGEST, _MIN_CORES = 1e9, 1e-3
_ONE_DEVICE = ("device", "device_name")
_ONE_JOB = ("dataset", "dataset_length", "batch_size", "model", "train_step", "collate_fn")


def measured(result: Result, label: str) -> tuple[tuple[Job, Job, Job], PlanSource]:
    """Return the job as a result shows it, at its lowest and highest possible costs, and the measured settings.

    Raises:
        UsageError: The result lacks what a plan needs.
    """
    raw, device = result.coupled(RAW), result.coupled(DEVICE)
    usage, workers = usage_of(result, RAW, "coupled"), positive(result.pipeline, "num_workers")
    cores, step_cores = cores_of(result), usage_of(result, DEVICE, "coupled").cores_main
    cpu_s = [] if raw is None or workers is None else [s for s in _cpu_s(result, raw, usage, workers) if s > 0]
    lacking = {
        "the throughput of the job and of its device": raw is None or device is None,
        "worker processes": workers is None,
        "the CPU time of its processes": not cpu_s or usage.cores_main is None or cores is None,
        "the CPU time of its train step, which runs on the CPU": step_cores is None and on_cpu(result),
        "what the ranks need: one slows the others down": result.verdict.straggler is not None,
    }
    for what in (what for what, lacks in lacking.items() if lacks):
        raise UsageError(f"{label} does not show {what}.", "Measure it again, to the end, with one worker or more.")
    assert raw and device and workers and cores and usage.cores_main is not None  # noqa: PT018 - for the types
    bound = result.verdict.upper_bound
    top = (over_0(bound.samples_per_s) if bound is not None else None) or device.samples_per_s
    main_s = usage.cores_main / raw.samples_per_s
    step_cpu_s, wait_s = min(main_s, (step_cores or 0.0) / top), _wait_s(result, raw, workers)
    job = Job(
        cpu_s=cpu_s[0],
        wait_s=wait_s[0],
        step_s=1 / top,
        step_cpu_s=step_cpu_s,
        hand_cpu_s=main_s - step_cpu_s,
        hand_s=_hand_s(result, raw, top, main_s - step_cpu_s),
        batch=raw.samples_per_s * raw.seconds_per_batch,
        prefetch=positive(result.pipeline, "prefetch_factor") or _USUAL_PREFETCH,
        cv=_cv(result, workers),
        device_share=_device_share(result, device),
    )
    (low, high), (fast, slow) = (_error(rate) for rate in (raw, device))
    cheap = replace(job, cpu_s=min(cpu_s) * low, wait_s=min(wait_s) * low, step_s=job.step_s * fast)
    dear = replace(job, cpu_s=max(cpu_s) * high, wait_s=max(wait_s) * high, step_s=job.step_s * slow)
    own = max(0.1 * cores, cores - (usage.cores_other or 0.0))
    numbers = (value for three in (job, cheap, dear) for value in (*astuple(three), 1 / top, own))
    if own < _MIN_CORES or not all(0 <= value < _LARGEST for value in numbers):
        raise UsageError(f"{label} has numbers that no job can have.", "Measure it again.")
    return (job, cheap, dear), PlanSource(label, int(workers), own, raw.samples_per_s, 0.0)


def on_cpu(result: Result) -> bool:
    """Return True if the train step runs on the cores of the workers."""
    return is_cpu(result.environment.get("device"))


def cores_of(result: Result) -> float | None:
    """Return the cores that the job may use."""
    return over_0(result.evidence.utilisation.cores.usable) or positive(result.environment, "cpu_cores_available")


def usage_of(result: Result, name: str, mode: str) -> ExperimentUsage:
    """Return the usage of an experiment; empty if not measured."""
    return raw_usage(result.evidence, name, mode) or ExperimentUsage()


def _alone(result: Result) -> tuple[Rate | None, float | None]:
    """Return the loader alone, and the cores that its workers kept busy."""
    raw = next((e for e in result.experiments if e.name == RAW and e.available), None)
    return result.loader_alone, usage_of(result, RAW, "workers" if raw and raw.workers else "drained").cores_workers


def _error(rate: Rate) -> tuple[float, float]:
    """Return the factors of a time between which its interval lies."""
    half = min(0.9, max(0.0, rate.high - rate.low) / 2 / rate.samples_per_s)
    return 1 - half, 1 + half


def _cpu_s(result: Result, raw: Rate, usage: ExperimentUsage, workers: float) -> list[float]:
    """Return the workers' CPU time per sample: in the job, and in the loader alone; else as stages were observed."""
    rate, busy = _alone(result)
    both = ((usage.cores_workers, raw), (busy, rate))
    found = [cores / run.samples_per_s for cores, run in both if cores is not None and run is not None]
    seen = [stage.cpu_s_per_batch for stage in result.stages if stage.cpu_s_per_batch is not None]
    return found or [sum(seen) * workers / (raw.samples_per_s * raw.seconds_per_batch)]


def _wait_s(result: Result, raw: Rate, workers: float) -> list[float]:
    """Return a worker's time per sample without computing or waiting for a core: as the stages were observed, and
    in the loader alone."""
    times = [(stage.wall_s_per_batch, waiting_share(stage, result.evidence)) for stage in result.stages]
    seen = [wall_s * share for wall_s, share in times if wall_s is not None and share is not None]
    found = [sum(seen) * workers / (raw.samples_per_s * raw.seconds_per_batch)] if seen else []
    (rate, busy), core_wait = _alone(result), max(0.0, result.evidence.core_wait_per_cpu_s or 0.0)
    if rate is not None and busy is not None:
        found.append(max(0.0, workers - busy * (1 + core_wait)) / rate.samples_per_s)
    return found or [0.0]


def _hand_s(result: Result, raw: Rate, top: float, hand_cpu_s: float) -> float:
    """Return the loop's time besides the step when the workers' batches are ready."""
    fed = result.coupled(AFTER_COLLATE)
    if result.verdict.state == "device_bound":
        fed = raw
    elif on_cpu(result):  # its step does not continue while a batch is received
        return hand_cpu_s
    return 0.0 if fed is None else max(0.0, 1 / max(raw.samples_per_s, fed.samples_per_s) - 1 / top)


def _cv(result: Result, workers: float) -> float:
    """Return the scatter of a worker's batches, by the blocks of the loader alone: each is the mean of some."""
    blocks = [b for b in blocks_of(_alone(result)[0]) if b.batches and b.samples and b.seconds > 0]
    if len(blocks) < 3:
        return _USUAL_CV
    times = [block.seconds / block.samples for block in blocks]
    of_a_worker = statistics.fmean(block.batches for block in blocks) / workers
    return min(_MAX_CV, statistics.stdev(times) / statistics.fmean(times) * math.sqrt(of_a_worker))


def _device_share(result: Result, device: Rate) -> float:
    """Return the part of a step in which the device computes, by a trace or its driver; 1 if neither says."""
    busy_s = result.evidence.trace.device.device_busy_s_per_step
    share = usage_of(result, DEVICE, "coupled").gpu.busy_share
    if busy_s is not None and device.seconds_per_batch > 0:
        share = busy_s / device.seconds_per_batch
    return share if share is not None and 0 < share < 1 and not on_cpu(result) else 1.0


@dataclass(frozen=True)
class Fit:
    """A job, at its lowest and highest possible costs, and its predictions for the measured settings."""

    jobs: tuple[Job, ...]
    sources: tuple[PlanSource, ...]

    @property
    def misfit(self) -> float:
        """Largest relative error of a measured throughput."""
        return max(abs(one.predicted_samples_per_s / one.samples_per_s - 1) for one in self.sources)

    def interval(self, values: Iterable[float], most: float = math.inf, misfit: float | None = None) -> Interval:
        """Return the interval around the job's own value: the two others, and as far off as the plan is there."""
        found, apart = list(values), 1 + (self.misfit if misfit is None else misfit)
        return Interval(*(min(most, bound) for bound in (found[0], min(found) / apart, max(found) * apart)))

    @property
    def cores(self) -> Interval:
        """Cores that keep a device busy."""
        likely, cheap, dear = self.jobs
        pairs = (likely, likely), (cheap, dear), (dear, cheap)  # a slow device needs less, and a fast one more
        return self.interval(rate.fed_per_s * (cost.cpu_s + cost.main_cpu_s) for cost, rate in pairs)

    def rates(self, workers: int, cores: float, limit: float = math.inf) -> tuple[Interval, Interval]:
        """Return the throughput of a GPU, and its part of what the device can do."""
        rates = [predict(job, workers, cores, limit) for job in self.jobs]
        shares = (rate * self.jobs[0].step_s for rate in rates)
        return self.interval(rates, 1 / min(job.step_s for job in self.jobs)), self.interval(shares, 1.0)


def fit(results: Sequence[Result], labels: Sequence[str], speed: float = 1.0) -> Fit:
    """Return the job as all results together show it.

    Args:
        results: Of one job, at different settings where there are several.
        labels: What they are called.
        speed: Of the device that is asked about, as a multiple of that which was measured.

    Raises:
        UsageError: A result lacks what a plan needs, or they are of different jobs.
    """
    for other, label in zip(results[1:], labels[1:], strict=True):
        for key in (key for key in _ONE_JOB if results[0].pipeline.get(key) != other.pipeline.get(key)):
            given = f"{results[0].pipeline.get(key)!s:.60} in {labels[0]}, {other.pipeline.get(key)!s:.60} in {label}"
            raise UsageError(f"The results are from different jobs: {key} is {given}.", "Give results of one job.")
        if any(results[0].environment.get(key) != other.environment.get(key) for key in _ONE_DEVICE):
            raise UsageError(
                f"{labels[0]} and {label} are from different devices.", "Plan by the results of one kind of machine."
            )
    read = [measured(result, label) for result, label in zip(results, labels, strict=True)]
    alike = zip(*(jobs for jobs, _ in read), strict=True)
    jobs = tuple(Job(*map(statistics.fmean, zip(*map(astuple, same), strict=True))) for same in alike)
    sources = (
        replace(source, predicted_samples_per_s=predict(jobs[0], source.num_workers, source.cores))
        for _, source in read
    )
    return Fit(tuple(job.on(speed) for job in jobs), tuple(sources))
