"""Utilisation: what is used up, and a row for each experiment."""

from __future__ import annotations

from collections.abc import Iterator

from bottleneck.analysis.saturation import find_saturation
from bottleneck.reports.document import PAGES, Column, Items, Paragraph, Section, Table
from bottleneck.results.evidence import ExperimentUsage, Utilisation
from bottleneck.results.format import UNKNOWN, known, percent, size
from bottleneck.results.records import Result

_NUMBERS = ("cores busy", "workers", "main", "others", "disk", "network", "device")
_COLUMNS = (
    Column("experiment", "name", on=PAGES),
    Column("mode", on=PAGES),
    *(Column(title, "number", on=PAGES) for title in _NUMBERS),
)


def utilisation(result: Result) -> Iterator[Section]:
    """What the job uses up, and on a page everything that was seen."""
    seen = result.evidence.utilisation
    found = find_saturation(result.evidence, result.verdict.state)
    yield Section(
        "Cores, disk, network and device in each experiment",
        (
            Paragraph(found.sentence if found is not None else ""),
            Paragraph(_memory(seen), on=PAGES),
            Items(seen.missing, "Not seen"),
            Table(_COLUMNS, tuple(map(_row, seen.experiments)), on=PAGES),
        ),
    )


def _memory(seen: Utilisation) -> str:
    """What the workers take of the memory, as a sentence; empty where it is not known."""
    workers = seen.workers
    private, growth, cached = workers.private_bytes, workers.private_growth_bytes_per_s, workers.cache_bytes
    total, peak = seen.shared_memory.size_bytes, seen.shared_memory.peak_used_bytes
    parts = []
    if private is not None:
        grows = f", which changed by {size(growth)} a second" if growth is not None else ""
        caches = f" ({size(cached)} of it caches of this diagnosis)" if cached else ""
        parts.append(f"The workers together had {size(private)} of memory of their own{caches}{grows}.")
    if total is not None and peak is not None:
        parts.append(f"Of the {size(total)} of /dev/shm, {size(peak)} were in use at most.")
    return " ".join(parts)


def _row(found: ExperimentUsage) -> tuple[str, ...]:
    read, written = found.disk_read_bytes_per_s, found.disk_write_bytes_per_s
    disk = None if read is None and written is None else (read or 0.0) + (written or 0.0)
    cores = (found.cores_busy, found.cores_workers, found.cores_main, found.cores_other)
    return (
        found.name or "",
        found.mode or "",
        *(f"{amount:,.2f}" if known(amount) else UNKNOWN for amount in cores),
        *(UNKNOWN if speed is None else f"{size(speed)}/s" for speed in (disk, found.network_bytes_per_s)),
        percent(found.gpu.busy_share),
    )
