"""Passes over DataLoaders, noticed at their beginning: the creation of a PyTorch iterator.

Loaders create it in `DataLoader.__iter__`, through `_get_iterator` in an overridden `__iter__`, or without being a
DataLoader at all, as in fastai. An iterator that a class keeps over its epochs is created once: then a call of its
class' `__iter__` begins the next pass. Other objects become a DataLoader on which the experiments can run.
"""

from __future__ import annotations

import functools
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from multiprocessing.context import BaseContext
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from bottleneck.job.loader_classes import keeps_workers
from bottleneck.job.replaced import replace_function
from bottleneck.job.torch_loading import BaseIterator, drop_batches, is_stream, order_of, shut_down
from bottleneck.loader.trees import as_it_is
from bottleneck.script.elsewhere import Elsewhere, Pass
from bottleneck.script.job import Moves

if TYPE_CHECKING:
    from bottleneck.script.watch import Watch

Begin = Callable[[Any], Iterator[Any]]

_open: Callable[[Any, Begin], Iterator[Any] | None] | None = None
"""Function that returns the iterator, or None for PyTorch's own, while `Passes` is entered; otherwise None."""


def _make(kind: type, /, *arguments: Any, **named: Any) -> Any:
    """Replace the `__new__` of PyTorch's iterators."""
    loader, rest = arguments[0] if arguments else named.pop("loader", None), arguments[1:]

    def begin(given: Any) -> Any:
        made: Any = object.__new__(kind)
        made.__init__(given, *rest, **named)
        return made

    found = _open(loader, begin) if _open is not None and loader is not None else None
    return object.__new__(kind) if found is None else found


class Passes:
    """A context in which each pass over a DataLoader begins with `open`.

    Args:
        open: Gets the loader and a function that begins a pass over it; returns the iterator, or None if this pass is
            not needed.
        begun: Gets a loader of a class that overrides `__iter__`, when that is called.
    """

    def __init__(
        self, open: Callable[[DataLoader[Any], Begin], Iterator[Any] | None], begun: Callable[[DataLoader[Any]], None]
    ) -> None:
        self._open, self._begun = open, begun
        self._replaced = ExitStack()
        self._kinds: set[type] = set()
        """Classes whose `__iter__` is replaced."""
        self._lent: dict[int, tuple[Any, Any]] = {}

    def __enter__(self) -> Passes:
        global _open  # noqa: PLW0603 - there is one door
        notice = self._notice

        def made(cls: Any, /, **options: Any) -> None:
            super(DataLoader, cls).__init_subclass__(**options)  # type: ignore[misc]  # a class below it
            notice(cls)

        _open = self._open_any
        # It stays: a class whose __new__ is removed again refuses all arguments.
        BaseIterator.__new__ = _make  # type: ignore[assignment, method-assign]  # replaced on purpose
        self._replaced.callback(replace_function(DataLoader, "__init_subclass__", lambda _: classmethod(made)))
        for kind in _below(DataLoader):
            self._notice(kind)
        return self

    def __exit__(self, *_: object) -> None:
        global _open  # noqa: PLW0603 - there is one door
        _open = None
        self._replaced.close()

    def _open_any(self, loader: Any, begin: Begin) -> Iterator[Any] | None:
        if not isinstance(loader, DataLoader):
            try:
                # Kept, so that no other gets its identity.
                _, dataset = self._lent.setdefault(id(loader.dataset), (loader.dataset, lent_dataset(loader)))
                lent = lent_loader(loader, dataset)
            except Exception:  # noqa: BLE001 - it lacks a DataLoader's attributes: its pass stays PyTorch's own
                return None
            return self._open(lent, lambda _: begin(loader))
        return self._open(loader, begin)

    def _notice(self, kind: type) -> None:
        """Notice passes of a class that overrides `__iter__`, even over an iterator that it keeps."""
        if "__iter__" in vars(kind) and kind not in self._kinds:
            self._kinds.add(kind)
            self._replaced.callback(replace_function(kind, "__iter__", self._noticed))

    def _noticed(self, original: Begin) -> Begin:
        @functools.wraps(original)
        def begin(loader: DataLoader[Any]) -> Any:
            self._begun(loader)
            return original(loader)

        return begin


def _below(kind: type) -> Iterator[type]:
    child: type
    for child in kind.__subclasses__():
        yield child
        yield from _below(child)


@dataclass(eq=False)
class Source:
    """A source of batches for a loop: a dataset, through any number of loaders, as some scripts make one per epoch."""

    loader: DataLoader[Any]
    """The last loader with a batch that an optimizer step followed; before that, the first loader."""
    given_by: WatchedIterator | None = None
    """Iterator of the last batch since the last optimizer step."""
    per_step: list[int] = field(default_factory=list)
    """Number of batches before each optimizer step that followed any."""
    is_wrapped: bool = False
    """True if wrapped by `bottleneck.watch`: the work on each batch is a step, with or without an optimizer."""
    batches: int = 0
    """Number of batches for any consumer, before the diagnosis feeds the loop."""
    waited_s: float = 0.0
    """Seconds for which the loop waited for its batches."""
    gave_s: float = 0.0
    """Time of the last batch [s]."""
    passes: int = 0
    """Number of passes with training batches, until the diagnosis feeds the loop."""
    began_s: float | None = None
    """Beginning of the last such pass [s]; None once another pass has begun."""
    pass_s: list[float] = field(default_factory=list)
    """Seconds from the beginning of each such pass to that of the next, with the workers' start and end."""
    steps_beside: int = 0
    """Steps after one of its batches since the diagnosis feeds the loop, from this source or another."""
    moves: Moves = field(default_factory=Moves)
    """Record of the loop's use of the parts of its batches."""
    ended: Any = None
    """PyTorch's iterator of the last real batch, once its workers have ended: it provides the state for a loader that
    asks its iterator."""

    @property
    def steps(self) -> int:
        """Optimizer steps that follow one of its batches."""
        return len(self.per_step)

    def pass_begins(self, now_s: float) -> None:
        """Note that a pass over it begins."""
        if self.began_s is not None:
            self.pass_s.append(now_s - self.began_s)
        self.began_s = None

    @property
    def starts_workers_for_each_batch(self) -> bool:
        """True if the loop takes a single batch of each pass, as with `next(iter(loader))`."""
        restarts = self.loader.num_workers > 0 and not keeps_workers(self.loader)
        return restarts and self.passes >= sum(self.per_step)


def may_be_of_one_loop(one: DataLoader[Any], other: DataLoader[Any]) -> bool:
    """Return True if two loaders of a dataset can belong to two epochs of one loop."""
    return one is other or all(
        function(one) == function(other)
        for function in (type, lambda it: it.batch_size, lambda it: it.num_workers, lambda it: type(it.sampler))
    )


_MAX_LOOKED_AT = 16
"""Maximum batches without a step that are observed in a pass."""


class WatchedIterator(BaseIterator):
    """The iterator of a DataLoader, until the diagnosis feeds the loop in its place.

    It inherits from PyTorch's class, by which frameworks, and our copies of a loader, recognise a kept iterator.

    Args:
        watch: Decides before each batch if the loop is fed.
        source: Record of its batches.
        loader: The iterated loader.
        begin: Begins a pass over it.
    """

    def __new__(cls, *_: object) -> WatchedIterator:
        return object.__new__(cls)

    def __init__(self, watch: Watch, source: Source, loader: DataLoader[Any], begin: Begin) -> None:
        # PyTorch's own __init__ is not called.
        self._watch, self._source, self._begin = watch, source, begin
        self._keep(loader)
        self.given = 0
        """Batches since the last optimizer step."""
        self.given_in_pass = 0
        self.began_s = 0.0
        """Beginning of the pass [s]."""
        self.second_s: float | None = None
        """Time of the request for its second batch [s]."""
        self.trains = False
        """True once an optimizer step has followed one of its batches."""
        if not source.steps:  # an earlier pass was not training: it may have averaged the pixels
            source.moves = Moves()
        self._batches: Any = None
        self._elsewhere: tuple[Elsewhere, Pass] | None = None
        self._start()

    @property
    def loader(self) -> Any:
        """The iterated loader; None if its pass has ended, and nothing else refers to it."""
        return self._loader()

    def _keep(self, loader: DataLoader[Any]) -> None:
        # A loader that keeps its workers keeps this: between passes, only the script may refer to the loader.
        self._loader = weakref.ref(loader)
        self._of_pass: DataLoader[Any] | None = loader

    def _start(self) -> None:
        # If the diagnosis already feeds the loop, workers would start in vain.
        if not (self._watch.is_fed(self._source) and self.may_train):
            self.began_s = began = time.perf_counter()
            self._source.pass_begins(began)
            self._batches = self._begin(self.loader)
            self.goes_elsewhere(began)

    def goes_elsewhere(self, began: float) -> None:
        """Note a pass that the loop has begun at `began` [s], if its loader does not feed the loop."""
        notes: Elsewhere | None = self._watch.elsewhere
        is_training = self._watch.is_fed(self._source)
        if not self._watch.is_feeding:
            notes, is_training = self._watch.first_epochs.elsewhere, self._watch.trains_most(self._source)
        if notes is not None and not (is_training and self.may_train):
            before = None if self._elsewhere is None else self._elsewhere[1]
            self._elsewhere = notes, notes.begin(self.loader, time.perf_counter() - began, before)

    def begin_pass(self) -> None:
        """Note another pass with an iterator that its loader has kept: it is not necessarily part of the training."""
        self.given, self.given_in_pass, self.trains = 0, 0, False
        self.began_s, self.second_s = time.perf_counter(), None

    def _reset(self, *arguments: Any, **named: Any) -> None:
        """Begin another pass with the same workers, as PyTorch's loader requests if they persist."""
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
        """True if it probably yields training batches: an evaluation can use the same dataset."""
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
        if self._batches is None:  # it was fed, until the diagnosis gave up
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
        if not self._watch.is_feeding or torch.is_grad_enabled():  # and not an evaluation after every other step
            self._source.given_by = self
        if self.given <= _MAX_LOOKED_AT and self._watch.learns_of(self._source):
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
        """Stop the workers: those of the diagnosis replace them."""
        if self._batches is None:
            return
        ended, self._batches = self._batches, None
        self._source.ended = ended  # only its state is needed
        shut_down(ended)
        drop_batches(ended)


class Stream(IterableDataset[Any]):
    """A dataset of complete batches.

    Args:
        batches: Iterated once per pass.
    """

    own_loader = False
    """True if the settings of the DataLoader around it are the user's."""

    def __init__(self, batches: Iterable[Any]) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[Any]:
        return iter(self.batches)

    def __reduce__(self) -> tuple[Any, ...]:  # for spawned workers, which cannot import its class
        return _stream, (type(self).__name__, type(self).__mro__[1], self.batches)


class LentDataset(Stream):
    """A dataset around an object that PyTorch iterates like one; all other attributes are the object's."""

    own_loader = True

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "batches":
            raise AttributeError(name)
        return getattr(self.batches, name)


def stream_loader(batches: Iterable[Any]) -> DataLoader[Any]:
    """Return a DataLoader that yields the batches unchanged, from the main process."""
    # Reports name the dataset as the user does.
    return DataLoader(_stream(type(batches).__name__, Stream, batches), batch_size=None, collate_fn=as_it_is)


def _stream(name: str, kind: type[Stream], batches: Iterable[Any]) -> Stream:
    made: Stream = type(name, (kind,), {})(batches)
    return made


def lent_dataset(loader: Any) -> Any:
    """Return the dataset of an object that PyTorch iterates like a loader, as a map-style or iterable dataset.

    fastai's loader passes an object that is its own dataset; it gets the name of the dataset behind it.
    """
    dataset = loader.dataset
    if not is_stream(loader) or isinstance(dataset, IterableDataset):
        return dataset
    behind = [one.dataset for one in vars(dataset).values() if one is not dataset and hasattr(one, "dataset")]
    return _stream(type([*behind, dataset][0]).__name__, LentDataset, dataset)


def lent_loader(loader: Any, dataset: Any) -> DataLoader[Any]:
    """Return a DataLoader like an object that PyTorch iterates like a loader.

    Args:
        loader: An object that is not a DataLoader, but has the attributes that PyTorch's iterator reads.
        dataset: As from `lent_dataset`.
    """
    context = loader.multiprocessing_context if loader.num_workers else None
    workers = {
        "prefetch_factor": loader.prefetch_factor,
        "multiprocessing_context": context if isinstance(context, BaseContext) else None,
        "persistent_workers": loader.persistent_workers,
    }
    return DataLoader(
        dataset,
        **order_of(loader),
        **(workers if loader.num_workers else {}),
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        timeout=loader.timeout,
        worker_init_fn=loader.worker_init_fn,
        generator=loader.generator,
    )
