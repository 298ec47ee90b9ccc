"""How much memory the caches of a diagnosis may take; chosen when the size of a batch is known."""

from __future__ import annotations

from dataclasses import dataclass

from bottleneck.errors import MeasurementError
from bottleneck.results.format import cache_option, size

_LEAST_BYTES = 1 << 30
_LEAST_SHARE, _MOST_SHARE = 0.1, 0.25
"""Of the free memory: what caches may always take, though not over a GiB, and what they never exceed by default."""
_BATCHES_OF_WORKER = 3
"""A collated batch, and the samples of one with what their stages were given."""
_BATCHES_OF_MAIN = 8


@dataclass(frozen=True)
class CacheBudget:
    """What each kind of cache may take.

    Attributes:
        worker_bytes: Recorded data in each worker.
        host_bytes: Batches in host memory, in the main process.
        device_bytes: Batches in device memory, as far as that much of it is free.
    """

    worker_bytes: int
    host_bytes: int
    device_bytes: int

    def on_device(self, free_bytes: int | None) -> int:
        """Return what batches may take in device memory of which so much is free; None: not known."""
        return self.device_bytes if free_bytes is None else min(self.device_bytes, int(_MOST_SHARE * free_bytes))

    def for_replays(self, free_bytes: int | None) -> int:
        """Return what batches may take that are kept in host memory and on the device alike; `free_bytes` as above."""
        return self.host_bytes if free_bytes is None else min(self.host_bytes, self.on_device(free_bytes))


def choose_budget(
    batch_bytes: int, workers: int, *, given: int | None, free_bytes: int, device_shares: bool
) -> CacheBudget:
    """Divide the memory for caches up.

    Args:
        batch_bytes: What one collated batch takes.
        workers: Processes that record; at least one.
        given: What the user allows for all caches together; None: what the job needs, within a quarter of what is
            free.
        free_bytes: Memory that is free.
        device_shares: What is kept on the device comes out of the same memory, or of what the user allows.

    Raises:
        MeasurementError: Not even one batch fits into the main process.
    """
    copies = 2 if device_shares else 1
    for_workers, for_main = _BATCHES_OF_WORKER * workers * batch_bytes, _BATCHES_OF_MAIN * copies * batch_bytes
    needed = for_workers + for_main
    if given is None:
        total = max(min(_LEAST_BYTES, int(_LEAST_SHARE * free_bytes)), min(needed, int(_MOST_SHARE * free_bytes)))
        most = free_bytes // 2  # one batch has to be kept, whatever else is not
    else:
        total = most = given
    if copies * batch_bytes > most:
        raise MeasurementError(
            f"One batch takes {size(copies * batch_bytes)} in the caches, which may take {size(most)}.",
            f"Allow more: {cache_option(wanted_bytes(batch_bytes, _BATCHES_OF_WORKER * batch_bytes, workers))}.",
        )
    # A quarter is for the main process; more where the workers need less, less where it needs less itself.
    shares = sorted((total // 4, total - for_workers, for_main))
    main = max(shares[1], copies * batch_bytes)
    return CacheBudget(max(0, total - main) // workers, main // copies, main // copies)


def wanted_bytes(batch_bytes: int, recorded_bytes: int, workers: int) -> int:
    """Return what all caches together need for everything to be measured, also where the device shares it.

    Args:
        batch_bytes: What one collated batch takes.
        recorded_bytes: What a batch takes that a worker records whole.
    """
    for_workers = workers * recorded_bytes
    return for_workers + max(2 * _BATCHES_OF_MAIN * batch_bytes, for_workers // 3 + 1)
