"""Every pass over a DataLoader, seen where it begins: where an iterator of PyTorch's is made.

A loader comes there by `DataLoader.__iter__`, by `_get_iterator` in an `__iter__` of its own, or without being a
DataLoader at all, as fastai's does. An iterator that a class keeps over its epochs is made once: there, its own
`__iter__` says that the next one begins. What is no DataLoader becomes one that the experiments can be run on.
"""

from __future__ import annotations

import functools
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from multiprocessing.context import BaseContext
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data.dataloader import _BaseDataLoaderIter, _DatasetKind

from bottleneck.loader.clone import keeps_workers
from bottleneck.loader.trees import as_it_is
from bottleneck.script.elsewhere import Elsewhere, Pass
from bottleneck.script.job import Moves

if TYPE_CHECKING:
    from bottleneck.script.watch import Watch

Begin = Callable[[Any], Iterator[Any]]

_open: Callable[[Any, Begin], Iterator[Any] | None] | None = None
"""Gives the iterator, or None for PyTorch's own, while `Passes` is entered; None outside of it."""


def _make(kind: type, /, *arguments: Any, **named: Any) -> Any:
    """The `__new__` of PyTorch's iterators."""
    loader, rest = arguments[0] if arguments else named.pop("loader", None), arguments[1:]

    def begin(given: Any) -> Any:
        made: Any = object.__new__(kind)
        made.__init__(given, *rest, **named)
        return made

    found = _open(loader, begin) if _open is not None and loader is not None else None
    return object.__new__(kind) if found is None else found


class Passes:
    """While it is entered, each pass over a DataLoader begins with `open`.

    Args:
        open: Gets the loader and what begins a pass over it; gives the iterator, or None where this pass is of no
            interest.
        begun: Gets a loader of a class with an `__iter__` of its own, when that is called.
    """

    def __init__(
        self, open: Callable[[DataLoader[Any], Begin], Iterator[Any] | None], begun: Callable[[DataLoader[Any]], None]
    ) -> None:
        self._open, self._begun = open, begun
        self._originals: dict[type, Begin] = {}
        self._lent: dict[int, tuple[Any, Any]] = {}

    def __enter__(self) -> Passes:
        global _open  # noqa: PLW0603 - there is one door
        replace = self._replace

        def made(cls: Any, /, **options: Any) -> None:
            super(DataLoader, cls).__init_subclass__(**options)  # type: ignore[misc]  # a class below it
            replace(cls)

        _open = self._open_any
        # It stays: a class whose __new__ is taken away again refuses all arguments.
        _BaseDataLoaderIter.__new__ = _make  # type: ignore[assignment, method-assign]
        DataLoader.__init_subclass__ = classmethod(made)  # type: ignore[assignment]  # until the end
        for kind in _below(DataLoader):
            self._replace(kind)
        return self

    def __exit__(self, *_: object) -> None:
        global _open  # noqa: PLW0603 - there is one door
        _open = None
        del DataLoader.__init_subclass__
        for kind, original in self._originals.items():
            kind.__iter__ = original  # type: ignore[attr-defined]  # as it was

    def _open_any(self, loader: Any, begin: Begin) -> Iterator[Any] | None:
        if not isinstance(loader, DataLoader):
            try:
                # Kept, so that no other gets its identity.
                _, dataset = self._lent.setdefault(id(loader.dataset), (loader.dataset, lent_dataset(loader)))
                lent = lent_loader(loader, dataset)
            except Exception:  # noqa: BLE001 - it lacks what a DataLoader needs: its pass stays PyTorch's own
                return None
            return self._open(lent, lambda _: begin(loader))
        return self._open(loader, begin)

    def _replace(self, kind: type) -> None:
        """See where a class with an `__iter__` of its own begins a pass, be it over an iterator that it keeps."""
        original: Begin | None = vars(kind).get("__iter__")
        if original is None or kind in self._originals:
            return

        @functools.wraps(original)
        def begin(loader: DataLoader[Any]) -> Any:
            self._begun(loader)
            return original(loader)

        self._originals[kind] = original
        kind.__iter__ = begin  # type: ignore[attr-defined]  # until the end


def _below(kind: type) -> Iterator[type]:
    child: type
    for child in kind.__subclasses__():
        yield child
        yield from _below(child)


@dataclass(eq=False)
class Source:
    """What gives batches to a loop: a dataset, by whatever loaders; some scripts make one for each epoch."""

    loader: DataLoader[Any]
    """The last one with a batch that an optimizer's step followed; before that, the first one."""
    given_by: WatchedIterator | None = None
    """What gave the last batch since the last step of the optimizer."""
    per_step: list[int] = field(default_factory=list)
    """Of each step of the optimizer before which it gave any: how many batches."""
    is_wrapped: bool = False
    """By `bottleneck.watch`: what the loop does with each batch is a step, whether or not an optimizer is in it."""
    batches: int = 0
    """How many it gave before the diagnosis feeds the loop, to whatever asked."""
    waited_s: float = 0.0
    """How long the loop waited for its batches."""
    gave_s: float = 0.0
    """When it gave the last of them."""
    passes: int = 0
    """How many passes over it gave batches for training, until the diagnosis feeds the loop."""
    began_s: float | None = None
    """When the last of these began; None once another pass has begun."""
    pass_s: list[float] = field(default_factory=list)
    """Of these passes: from the beginning to that of the next, with the workers' start and end."""
    steps_beside: int = 0
    """Steps after one of its batches since the diagnosis feeds the loop, be it from this source or from another."""
    moves: Moves = field(default_factory=Moves)
    """What the loop does with the parts of its batches."""
    ended: Any = None
    """PyTorch's iterator that gave the last of its real batches, once its workers have ended: a loader that asks its
    iterator for a state gets that one's."""

    @property
    def steps(self) -> int:
        """Steps of the optimizer that follow one of its batches."""
        return len(self.per_step)

    def pass_begins(self, now_s: float) -> None:
        """Note that a pass over it begins."""
        if self.began_s is not None:
            self.pass_s.append(now_s - self.began_s)
        self.began_s = None

    @property
    def starts_workers_for_each_batch(self) -> bool:
        """Whether the loop takes a single batch of each pass, as with `next(iter(loader))`."""
        restarts = self.loader.num_workers > 0 and not keeps_workers(self.loader)
        return restarts and self.passes >= sum(self.per_step)


def may_be_of_one_loop(one: DataLoader[Any], other: DataLoader[Any]) -> bool:
    """Whether two loaders of a dataset can be those of two epochs."""
    return one is other or all(
        function(one) == function(other)
        for function in (type, lambda it: it.batch_size, lambda it: it.num_workers, lambda it: type(it.sampler))
    )


_MOST_LOOKED_AT = 16
"""Batches without a step that are looked at in a pass."""


class WatchedIterator(_BaseDataLoaderIter):
    """The iterator of a DataLoader, until the diagnosis feeds the loop in its place.

    Of PyTorch's class, by which frameworks, and our copies of a loader, know what a loader keeps from epoch to epoch.

    Args:
        watch: Is asked before each batch.
        source: What is noted of its batches.
        loader: The one that is iterated.
        begin: Gives its batches.
    """

    def __new__(cls, *_: object) -> WatchedIterator:
        return object.__new__(cls)

    def __init__(self, watch: Watch, source: Source, loader: DataLoader[Any], begin: Begin) -> None:
        # PyTorch's own is not wanted.
        self._watch, self._source, self._begin = watch, source, begin
        self._keep(loader)
        self.given = 0
        """Batches since the last step of the optimizer."""
        self.given_in_pass = 0
        self.began_s = 0.0
        """When the pass began."""
        self.second_s: float | None = None
        """When it was asked for its second batch."""
        self.trains = False
        """A step of an optimizer has followed on one of its batches."""
        if not source.steps:  # an earlier pass was no training: it may have taken the mean of the pixels
            source.moves = Moves()
        self._batches: Any = None
        self._elsewhere: tuple[Elsewhere, Pass] | None = None
        self._start()

    @property
    def loader(self) -> Any:
        """The one that is iterated; None where a pass has ended, and nobody else keeps it."""
        return self._loader()

    def _keep(self, loader: DataLoader[Any]) -> None:
        # A loader that keeps its workers keeps this: between passes, nothing but the script may keep the loader.
        self._loader = weakref.ref(loader)
        self._of_pass: DataLoader[Any] | None = loader

    def _start(self) -> None:
        # Workers would start for nothing where the diagnosis feeds the loop already.
        if not (self._watch.is_fed(self._source) and self.may_train):
            self.began_s = began = time.perf_counter()
            self._source.pass_begins(began)
            self._batches = self._begin(self.loader)
            self.goes_elsewhere(began)

    def goes_elsewhere(self, began: float) -> None:
        """Note that the loop has begun a pass, if it is over a loader that does not feed it."""
        notes: Elsewhere | None = self._watch.elsewhere
        is_training = self._watch.is_fed(self._source)
        if not self._watch.is_feeding:
            notes, is_training = self._watch.first_epochs.elsewhere, self._watch.trains_most(self._source)
        if notes is not None and not (is_training and self.may_train):
            before = None if self._elsewhere is None else self._elsewhere[1]
            self._elsewhere = notes, notes.begin(self.loader, time.perf_counter() - began, before)

    def begin_pass(self) -> None:
        """Note that another pass begins over what a loader has kept: it need not be one of the training."""
        self.given, self.given_in_pass, self.trains = 0, 0, False
        self.began_s, self.second_s = time.perf_counter(), None

    def _reset(self, *arguments: Any, **named: Any) -> None:
        """Begin another pass with the same workers, as PyTorch's loader asks for where they persist."""
        self._keep(arguments[0] if arguments else named["loader"])
        self._watch.pass_begins()
        self.begin_pass()
        if self._batches is None:
            self._start()
        elif not (self._watch.is_fed(self._source) and self.may_train):
            began = time.perf_counter()
            self._batches._reset(*arguments, **named)
            self.goes_elsewhere(began)

    @property
    def may_train(self) -> bool:
        """Whether it probably gives batches for training: an evaluation can be on the same dataset."""
        if self._source.is_wrapped:
            return True
        loader, of_source = self.loader, self._source.loader
        known = loader is not None and loader.dataset is of_source.dataset
        return self.trains or (known and torch.is_grad_enabled() and may_be_of_one_loop(loader, of_source))

    def __iter__(self) -> WatchedIterator:
        return self

    def __len__(self) -> int:
        return len(self._batches if self.loader is None else self.loader)

    def __getattr__(self, name: str) -> Any:
        batches, source = self.__dict__.get("_batches"), self.__dict__.get("_source")
        return getattr(getattr(source, "ended", None) if batches is None else batches, name)

    def __next__(self) -> Any:
        self._watch.stop_learning()
        if self._source.is_wrapped:
            self._watch.count_step(self._source)
        is_fed = self._batches is None or (self.may_train and self._watch.feeds(self._source, self))
        if is_fed and self._watch.refused is None:
            batch = self._fed_batch()
            if self._watch.refused is None:
                return batch
        if self._batches is None:  # it was fed, until that was given up
            self._start()
        began = time.perf_counter()
        if self.given_in_pass == 1:
            self.second_s = began
        try:
            batch = next(self._batches)
        except StopIteration:
            if self.trains and self._watch.goes_on_fed(self._source, self):
                batch = self._fed_batch()
                if self._watch.refused is None:
                    return batch
            self._gave(time.perf_counter() - began, ends=True)
            self._elsewhere = self._of_pass = None
            if self._watch.is_feeding and self._source.given_by is self:
                self._source.given_by = None  # an evaluation without no_grad, between two steps
            elif self.trains and not self._watch.is_feeding and self._watch.trains_most(self._source):
                self._watch.first_epochs.ends(self)
            raise
        waited_s = time.perf_counter() - began
        self._watch.note_wait(self._source, waited_s)
        self._gave(waited_s)
        self._source.batches += 1
        self.given, self.given_in_pass = self.given + 1, self.given_in_pass + 1
        if not self._watch.is_feeding or torch.is_grad_enabled():  # and no evaluation after every other step
            self._source.given_by = self
        if self.given <= _MOST_LOOKED_AT and self._watch.learns_of(self._source):
            self._watch.learn(self._source, batch)
        return batch

    def _fed_batch(self) -> Any:
        self._close()
        self._source.given_by = self
        self._watch.elsewhere.trains()
        return self._watch.next_batch()

    def _gave(self, seconds: float, *, ends: bool = False) -> None:
        if self._elsewhere is not None:
            notes, at = self._elsewhere
            notes.gave(at, seconds, ends=ends)

    def _close(self) -> None:
        """Stop the workers: those of the diagnosis have taken their place."""
        if self._batches is None:
            return
        stop = getattr(self._batches, "_shutdown_workers", None)
        self._source.ended, self._batches = self._batches, None
        if stop is not None:
            stop()
            # Only its state is asked for; what was fetched ahead may be pinned memory.
            getattr(self._source.ended, "_task_info", {}).clear()
            getattr(getattr(self._source.ended, "_data_queue", None), "queue", []).clear()  # of the thread that pins


class Stream(IterableDataset[Any]):
    """Items that are batches already.

    Args:
        batches: Iterated again when it has ended.
    """

    own_loader = False
    """The DataLoader around it is ours: no setting of it is the user's."""

    def __init__(self, batches: Iterable[Any]) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[Any]:
        return iter(self.batches)

    def __reduce__(self) -> tuple[Any, ...]:  # for workers that are spawned: nobody finds its class by a name
        return _stream, (type(self).__name__, type(self).__mro__[1], self.batches)


class LentDataset(Stream):
    """What an iterator of PyTorch's goes through that is no dataset by its class; it is asked for all else."""

    own_loader = True

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "batches":
            raise AttributeError(name)
        return getattr(self.batches, name)


def stream_loader(batches: Iterable[Any]) -> DataLoader[Any]:
    """Return a DataLoader that gives the batches as they are, from the main process."""
    # What is diagnosed is called what the user calls it.
    return DataLoader(_stream(type(batches).__name__, Stream, batches), batch_size=None, collate_fn=as_it_is)


def _stream(name: str, kind: type[Stream], batches: Iterable[Any]) -> Stream:
    made: Stream = type(name, (kind,), {})(batches)
    return made


def lent_dataset(loader: Any) -> Any:
    """Return the dataset of what an iterator of PyTorch's was made for, of one of its two kinds.

    fastai's loader hands over an object that is its own dataset; its name is that of the dataset behind it.
    """
    dataset = loader.dataset
    if loader._dataset_kind != _DatasetKind.Iterable or isinstance(dataset, IterableDataset):
        return dataset
    behind = [one.dataset for one in vars(dataset).values() if one is not dataset and hasattr(one, "dataset")]
    return _stream(type([*behind, dataset][0]).__name__, LentDataset, dataset)


def lent_loader(loader: Any, dataset: Any) -> DataLoader[Any]:
    """Return a DataLoader like what an iterator of PyTorch's was made for, which has what that asks of a loader.

    Args:
        loader: No DataLoader.
        dataset: As of `lent_dataset`.
    """
    order: dict[str, Any] = {"batch_size": getattr(loader, "batch_size", 1) if loader._auto_collation else None}
    if loader._dataset_kind == _DatasetKind.Map:
        order = {"batch_size": None, "sampler": loader._index_sampler}
        if loader._auto_collation:
            order = {"batch_sampler": loader._index_sampler}
    context = loader.multiprocessing_context if loader.num_workers else None
    workers = {
        "prefetch_factor": loader.prefetch_factor,
        "multiprocessing_context": context if isinstance(context, BaseContext) else None,
        "persistent_workers": loader.persistent_workers,
    }
    return DataLoader(
        dataset,
        **order,
        **(workers if loader.num_workers else {}),
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        timeout=loader.timeout,
        worker_init_fn=loader.worker_init_fn,
        generator=loader.generator,
    )
