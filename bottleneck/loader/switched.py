"""The user's DataLoader, rebuilt once around thin proxies and switched while it runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

from bottleneck.job.cuts import CutSite
from bottleneck.job.inspect import find_handles
from bottleneck.loader import modes
from bottleneck.loader.control import Control, Fault
from bottleneck.loader.engine import Engine
from bottleneck.loader.order import RequestOrder
from bottleneck.loader.plan import Plan
from bottleneck.loader.ptrace import allow_tracing
from bottleneck.loader.running import (
    LoaderEnded,
    RunningLoader,
    can_skip_batches,
    held_iterators,
    keep_quiet_about_broken_receivers,
)
from bottleneck.loader.user_code import UserCodeError, describe_failure


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


_RESUMING = {"next_iter_state": None, "_initial_iter_for_state_dict": False}


def clone_loader(loader: DataLoader[Any], engine: Engine, order: RequestOrder, hang_s: float) -> DataLoader[Any]:
    """Copy a loader, subclass and attributes included, around our proxies."""
    proxy = IterableProxy(engine) if isinstance(loader.dataset, IterableDataset) else MapProxy(engine)
    state: dict[str, Any] = {
        "dataset": proxy,
        "collate_fn": CollateProxy(engine),
        "worker_init_fn": WorkerInit(loader.worker_init_fn),
        "persistent_workers": loader.num_workers > 0,
        "_IterableDataset_len_called": None,  # our stream is longer than the user's, and needs no warning
    }
    # One that can be resumed would skip what it gave before.
    state |= {name: start for name, start in _RESUMING.items() if name in loader.__dict__}
    return _copy_loader(loader, order, hang_s, state)


def clone_for_one_start(loader: DataLoader[Any], requests: Any, hang_s: float) -> DataLoader[Any]:
    """Copy a loader as it is, but for what its workers are asked for; they end with its iterator."""
    return _copy_loader(loader, requests, hang_s, {"persistent_workers": False})


def _copy_loader(loader: DataLoader[Any], requests: Any, hang_s: float, state: dict[str, Any]) -> DataLoader[Any]:
    """Copy a loader past `__init__`: a subclass may have another signature."""
    clone: DataLoader[Any] = object.__new__(type(loader))
    clone.__dict__.update(loader.__dict__)
    # One that keeps its workers by holding an iterator must not share it with the clone.
    clone.__dict__.update(dict.fromkeys(held_iterators(loader)), _iterator=None)
    clone.__dict__["batch_sampler" if loader.batch_sampler is not None else "sampler"] = requests
    if loader.num_workers > 0 and not loader.timeout:
        clone.__dict__["timeout"] = hang_s
    clone.__dict__.update(state)
    return clone


def keeps_workers(loader: DataLoader[Any]) -> bool:
    """Whether the workers of a loader go on from epoch to epoch, by its argument or by an iterator that it keeps."""
    return bool(loader.persistent_workers or held_iterators(loader))


__all__ = ["LoaderEnded", "SwitchedLoader", "can_skip_batches"]

_LONGER_AT_MOST = 2
"""How many times as long as planned a block may get."""
_QUEUES_BEFORE = 4
"""Queues of batches that may be asked for before it: one is thrown away, and then the job runs until steady."""


class SwitchedLoader(RunningLoader):
    """Runs the user's loader with any set of stages real and the rest served from caches.

    Workers start once. `switch` changes one integer in shared memory; `discard_in_flight` then throws away what
    was asked for before.

    Args:
        loader: The user's loader; it is not changed.
        sites: Where its dataset could be cut.
        hang_s: Seconds without a batch after which the workers count as hung.
        allows_tracing: Workers let any process of the user look into them, for a profile.
        notes_files: The files that the workers open will be asked for.
        checking_s: What each worker may take to check that its recordings replay.
    """

    def __init__(
        self,
        loader: DataLoader[Any],
        sites: tuple[CutSite, ...],
        seed: int,
        hang_s: float,
        *,
        allows_tracing: bool = False,
        notes_files: bool = False,
        checking_s: float = math.inf,
    ) -> None:
        self.sites = sites
        self.can_skip_batches = can_skip_batches(loader)
        """A batch may be left out of what the loader gives."""
        control = Control(loader.num_workers)
        self.handles = find_handles(loader.dataset) if loader.num_workers else ()
        engine = Engine(
            loader.dataset, loader.collate_fn, control, sites, seed,
            batched=loader.batch_sampler is not None,
            iterable=isinstance(loader.dataset, IterableDataset),
            can_skip_batches=self.can_skip_batches,
            checking_s=checking_s,
            allows_tracing=allows_tracing,
            handles=self.handles,
            notes_files=notes_files and loader.num_workers > 0,
        )  # fmt: skip
        order = RequestOrder(loader, control, iterable=engine.iterable)
        super().__init__(loader, clone_loader(loader, engine, order, hang_s), engine, order, control)
        self._plan: Plan | None = None
        self._faults_read: dict[int, int] = {}
        # What the workers leave for this process.
        self.reports = control.reports.read
        self.observations = control.observations.read
        self.facts = control.facts.read
        self.files = control.files.read

    # --- switching -----------------------------------------------------------------------------------------

    @property
    def mode(self) -> int:
        return self._control.mode

    def switch(self, mode: int) -> None:
        """Change which stages work for real, and throw away every batch that was asked for before.

        Batches in flight are thrown away also when the mode stays the same: what has piled up would come
        for free.
        """
        self._control.begin_generation()
        self._control.mode = mode
        self.discard_in_flight()

    def switch_real(self, extra: int = 0) -> None:
        """Make everything real, with further bits of the mode, and hand nothing over where batches may be left out."""
        self.switch((modes.ALL & ~modes.HANDOFF if self.can_skip_batches else modes.ALL) | extra)

    def discard_in_flight(self) -> None:
        """Receive and drop the batches that have been asked for so far."""
        if not self.num_workers:
            return
        iterator = self._worker_iterator()
        asked_for = getattr(iterator, "_send_idx", 0)
        # A worker without a share of a stream never answers what it was asked for: nothing could be counted there.
        may_stay_away = self.iterable and self.can_skip_batches and asked_for > 0
        if not may_stay_away:
            for _ in range(self.order.sent - self._received):
                self.next_batch()
        if getattr(self._loader, "in_order", True) and not may_stay_away:
            return
        # Out of order, a quick worker's new batch may have come before a slow one's old batch.
        while iterator._send_idx >= asked_for and _is_due(iterator, asked_for):
            self.next_batch()

    def begin_epoch_within(self, batches: int) -> None:
        """Begin the user's next epoch now, if it might begin in a block of that many batches or on the way to it."""
        self.order.begin_epoch_within(_LONGER_AT_MOST * batches + _QUEUES_BEFORE * self.queue_length)

    def rest(self) -> None:
        """Leave the workers with nothing to do."""
        self.switch(modes.REST if self.can_skip_batches else modes.HANDOFF)

    def use_plan(self, plan: Plan) -> None:
        """Let the workers rest, then hand the plan to all of them.

        In this order: a worker that knows the plan must not record any more.
        """
        self._plan = plan
        self.order.set_blank_sizes(plan.batch_sizes)
        self.rest()
        self._control.publish_plan(plan)

    def changed_recordings(self) -> list[str]:
        """Let each worker check what it has recorded; return what of it is no longer what was recorded."""
        self.switch(modes.HANDOFF | modes.CHECK)
        for _ in range(max(1, self.num_workers)):
            self.next_batch()
        return sorted(set().union(*self._control.changed.read()))

    def serve_batches_themselves(self) -> None:
        """Serve recorded batches without a copy from now on: the job does not change them; without workers only."""
        if self._plan is not None and not self.num_workers:
            self._plan = replace(self._plan, copy_batches=False)
            self._control.publish_plan(self._plan)

    def new_faults(self) -> list[Fault]:
        """Return what the workers could not serve since this was asked last, without repetition."""
        new: dict[Fault, None] = {}
        for worker, faults in self._control.read_new_faults().items():
            new |= dict.fromkeys(faults[self._faults_read.get(worker, 0) :])
            self._faults_read[worker] = len(faults)
        return list(new)

    # --- a pool of batches ---------------------------------------------------------------------------------

    @property
    def queue_length(self) -> int:
        """Batches that are asked for ahead."""
        return self.num_workers * (self._loader.prefetch_factor or 0)

    def trim_pool(self, batches: int) -> None:
        del (self.order.pool or [])[max(1, batches) :]

    def restart_pool(self, at: int = 0) -> None:
        """Begin again with a batch of the pool; the loader must be at rest."""
        self.order.pool_position = at

    @property
    def user_dataset(self) -> Any:
        return self._engine.user_dataset

    @property
    def works_ahead(self) -> bool:
        """Whether batches may be made in threads or processes of the user's own, also while the job asks for none."""
        return not getattr(type(self.user_dataset), "own_loader", True)

    @property
    def pool_position(self) -> int:
        """Batches of the pool that were asked for since its last restart."""
        return self.order.pool_position

    @property
    def pool_received(self) -> int:
        """How many batches of the pool were received since its restart, if all in flight are of it."""
        if not getattr(self._loader, "in_order", True):
            return 0  # some before the last one received may be missing
        return max(0, self.pool_position - (self.order.sent - self._received))

    def allow_caches(self, worker_bytes: int) -> None:
        """Say what the caches of each worker may take, before anything is recorded; until then it is nothing."""
        self._control.worker_cache_bytes = worker_bytes

    @property
    def cache_bytes(self) -> int:
        return self._control.cache_bytes()


def _is_due(iterator: Any, asked_for: int) -> bool:
    """Whether a batch with a number below some other one is still to come."""
    return any(
        number < asked_for and (len(info) > 1 or iterator._workers_status[info[0]])
        for number, info in iterator._task_info.items()
    )
