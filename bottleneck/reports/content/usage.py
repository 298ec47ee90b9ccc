"""What every format shows of the utilisation: what is used up, and a row for each experiment, looked up once."""

from __future__ import annotations

from dataclasses import dataclass

from bottleneck.analysis.advice.saturation import find_saturation
from bottleneck.reports import numbers, sanitize
from bottleneck.results.evidence import ExperimentUsage
from bottleneck.results.records import Result

COLUMNS = ("experiment", "mode", "cores busy", "workers", "main", "others", "disk", "network", "device")
"""Titles of the cells of a row; the first two are text."""


@dataclass(frozen=True)
class UsageRow:
    """An experiment and what was used while it ran.

    Attributes:
        name: The experiment, or the stage that it is without.
        mode: 'coupled', 'drained', 'workers' or 'without'.
        cells: Numbers as text, in the order of `COLUMNS` behind the first two.
    """

    name: str
    mode: str
    cells: tuple[str, ...]


def used_up(result: Result) -> str:
    """What the job uses up, as a sentence; empty where it was not seen."""
    found = find_saturation(result.evidence, result.verdict.state)
    return found.sentence if found is not None else ""


def missing(result: Result) -> tuple[str, ...]:
    """One line each on what could not be seen."""
    return tuple(sanitize.one_line(line) for line in result.evidence.utilisation.missing)


def rows(result: Result) -> tuple[UsageRow, ...]:
    """A row for each experiment that was watched."""
    return tuple(_row(found) for found in result.evidence.utilisation.experiments)


def memory(result: Result) -> str:
    """What the workers take of the memory, as a sentence; empty where it is not known."""
    workers, shared = result.evidence.utilisation.workers, result.evidence.utilisation.shared_memory
    private, growth, cached = workers.private_bytes, workers.private_growth_bytes_per_s, workers.cache_bytes
    size, peak = shared.size_bytes, shared.peak_used_bytes
    parts = []
    if private is not None:
        grows = f", which changed by {numbers.size(growth)} a second" if growth is not None else ""
        caches = f" ({numbers.size(cached)} of it caches of this diagnosis)" if cached else ""
        parts.append(f"The workers together had {numbers.size(private)} of memory of their own{caches}{grows}.")
    if size is not None and peak is not None:
        parts.append(f"Of the {numbers.size(size)} of /dev/shm, {numbers.size(peak)} were in use at most.")
    return " ".join(parts)


def _row(found: ExperimentUsage) -> UsageRow:
    read, written = found.disk_read_bytes_per_s, found.disk_write_bytes_per_s
    disk = None if read is None and written is None else (read or 0.0) + (written or 0.0)
    return UsageRow(
        name=found.name or "",
        mode=found.mode or "",
        cells=(
            *map(_amount, (found.cores_busy, found.cores_workers, found.cores_main, found.cores_other)),
            _speed(disk),
            _speed(found.network_bytes_per_s),
            numbers.percent(found.gpu.busy_share),
        ),
    )


def _amount(cores: float | None) -> str:
    return numbers.UNKNOWN if cores is None or abs(cores) >= numbers.LARGEST else f"{cores:,.2f}"


def _speed(bytes_per_s: float | None) -> str:
    return numbers.UNKNOWN if bytes_per_s is None else f"{numbers.size(bytes_per_s)}/s"
