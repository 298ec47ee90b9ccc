"""What shows only over whole epochs: the start of the workers."""

from __future__ import annotations

from torch.utils.data import IterableDataset

from bottleneck.results.format import duration
from bottleneck.tuning.change import Here

NO_WORKERS = "the loader has no workers"
_START_MATTERS = 0.01
"""Share of an epoch that starting the workers takes, below which nothing is gained there."""
_LONGEST_EPOCH_S = 20.0


def starts_matter_not(here: Here) -> str | None:
    """Why a quicker start of the workers, or none, does not apply; None where it does."""
    if not here.loader.num_workers:
        return NO_WORKERS
    if here.loader.persistent_workers:
        return "the loader keeps its workers already"
    if here.epoch_s is None or isinstance(here.loader.dataset, IterableDataset):
        return "an epoch of the loader has no known length"
    if here.start_s < _START_MATTERS * here.epoch_s:
        return f"starting workers takes {duration(here.start_s)} of an epoch of {duration(here.epoch_s)}"
    if here.epoch_s > _LONGEST_EPOCH_S:
        return f"it shows only over whole epochs, and one takes {duration(here.epoch_s)}"
    return None
