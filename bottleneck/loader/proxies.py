"""The thin objects that stand in for the user's dataset, collate function and worker initialiser."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import Dataset, IterableDataset, get_worker_info

from bottleneck.loader import modes
from bottleneck.loader.shutdown import keep_quiet_about_broken_receivers
from bottleneck.loader.worker.engine import Engine
from bottleneck.loader.worker.ptrace import allow_tracing
from bottleneck.loader.worker_errors import UserCodeError, describe_failure


class _Forwarding:
    """Answers for attributes of the user's dataset, for loaders that look at theirs."""

    engine: Engine

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "engine":
            raise AttributeError(name)
        return getattr(self.engine.user_dataset, name)


class MapProxy(_Forwarding, Dataset[Any]):
    """Stands in for a map-style dataset; fetches whole batches, as the loader's fetcher does."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def __getitem__(self, index: Any) -> Any:
        return self.engine.fetch(index)

    def __getitems__(self, indices: Any) -> Any:
        return self.engine.fetch(indices)

    def __len__(self) -> int:
        return len(self.engine.user_dataset)


class IterableProxy(_Forwarding, IterableDataset[Any]):
    """Stands in for an iterable dataset, and never ends."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def __iter__(self) -> Iterator[Any]:
        return self.engine.iterate()


class CollateProxy:
    """Stands in for the collate function."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def __call__(self, samples: Any) -> Any:
        return self.engine.collate(samples)


class WorkerInit:
    """Runs the user's `worker_init_fn` in a worker that looks like the user's own, then cuts the dataset.

    The user's function finds its own dataset in `get_worker_info().dataset`, not our proxy.
    """

    def __init__(self, worker_init_fn: Callable[[int], None] | None) -> None:
        self._worker_init_fn = worker_init_fn

    def __call__(self, worker: int) -> None:
        import signal

        # Ctrl-C reaches the whole process group; the main process stops the workers, in order.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        keep_quiet_about_broken_receivers()
        info = get_worker_info()
        engine = info.dataset.engine  # type: ignore[union-attr]  # in a worker
        if engine.allows_tracing:
            allow_tracing()
        object.__setattr__(info, "dataset", engine.user_dataset)
        if self._worker_init_fn is not None:
            self._initialise(worker)
        engine.user_dataset = info.dataset  # type: ignore[union-attr]  # in a worker
        engine.start()

    def _initialise(self, worker: int) -> None:
        assert self._worker_init_fn is not None
        try:
            self._worker_init_fn(worker)
        except BaseException as error:  # noqa: BLE001 - anything it raises ends the worker, and is reported
            described = describe_failure(error, "worker_init_fn", index=None, worker=worker, mode=modes.ALL)
            raise UserCodeError(described) from None
