"""Evidence beside the throughputs: waits for batches, and where the data was read from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bottleneck.measure.arms import Arm
from bottleneck.measure.blocks import reads_storage

# Read-ahead and metadata make a few bytes come from storage even when all data is cached.
_WARM_SHARE = 0.05


def summarise_waits(waits_s: Iterable[float]) -> dict[str, float]:
    """Return percentiles, in seconds, of how long the job waited for each batch."""
    values = np.asarray(list(waits_s), dtype=float)
    p50, p95, p99 = np.percentile(values, [50, 95, 99])
    return {"p50": float(p50), "p95": float(p95), "p99": float(p99), "max": float(values.max())}


@dataclass(frozen=True)
class IoCounters:
    """Bytes that processes asked for, and those of them that came from storage."""

    requested: int
    storage: int


class StorageReads:
    """Tells from /proc/<pid>/io whether `raw` read from storage or from the page cache."""

    def __init__(self) -> None:
        self._pids: tuple[int, ...] = ()
        self._known = False
        self._requested = self._storage = self._samples = 0

    def start(self, workers: tuple[int, ...]) -> None:
        """Watch these processes; with no workers, this one."""
        self._pids = workers
        self._known = self.read() is not None

    def read(self) -> IoCounters | None:
        """Return the counters now; None where the system does not tell."""
        requested = storage = 0
        try:
            for pid in self._pids or ("self",):
                lines = Path(f"/proc/{pid}/io").read_text().splitlines()
                fields = dict(line.split(": ") for line in lines)
                requested += int(fields["rchar"])
                storage += int(fields["read_bytes"])
        except (OSError, ValueError, KeyError):
            return None
        return IoCounters(requested, storage)

    def add(self, arm: Arm, before: IoCounters | None, samples: int) -> None:
        """Count one block, if its arm really loads."""
        after = self.read()
        if before is None or after is None or not reads_storage(arm):
            return
        self._requested += after.requested - before.requested
        self._storage += after.storage - before.storage
        self._samples += samples

    def summary(self) -> dict[str, Any] | None:
        """Return bytes per sample and a label: `cold`, `warm` or `none`; None where nothing is known."""
        if not self._known or not self._samples:
            return None
        label = "warm"
        if self._storage > _WARM_SHARE * max(self._requested, 1):
            label = "cold"
        elif self._requested < 1024 * self._samples and not self._storage:
            label = "none"
        return {
            "requested_bytes_per_sample": self._requested / self._samples,
            "storage_bytes_per_sample": self._storage / self._samples,
            "label": label,
        }
