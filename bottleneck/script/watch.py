"""The search for the loader that feeds the training: an optimizer step or backward pass follows its batches.

Until the training loader is known its batches are real, and those of all others always are. Batches wrapped by
`bottleneck.watch` need neither a DataLoader nor an optimizer.
"""

from __future__ import annotations

import contextlib
import difflib
import itertools
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import DataLoader

from bottleneck.errors import BottleneckError, UsageError
from bottleneck.job.torch_loading import arrived_in, held_iterators
from bottleneck.job.world import world_size
from bottleneck.measure.evidence.payload import has_compiled
from bottleneck.measure.options import Loop
from bottleneck.script import batches as wrapped
from bottleneck.script.elsewhere import Elsewhere
from bottleneck.script.first_epochs import FirstEpochs
from bottleneck.script.iterators import Begin, Passes, Source, WatchedIterator, stream_loader
from bottleneck.script.job import BackwardPasses, Moves
from bottleneck.script.order import StepOrder
from bottleneck.script.pace import OwnPace
from bottleneck.script.starting import StartUp

_SURE_STEPS = 10
"""Optimizer steps after which the loaders of a loop are known."""
_BESIDE_SHARE = 0.1
"""Minimum share of a loop's steps after batches of another loader, if that trains, too: a generator may train once for
several steps of its discriminator."""


class Watch:
    """A context that watches all DataLoaders of the process.

    Args:
        begin: Called once, with the source of the training's batches and the optimizers, before the first batch of the
            diagnosis; returns the function from which the loop gets its batches.
        steps: Optimizer steps before that.
        wanted: The source to diagnose if several feed a loop: its number, from 0 in the order of the first request for
            a batch, or the name of its dataset's class. None: the one with the longest waits.
    """

    def __init__(
        self,
        begin: Callable[[Source, tuple[Any, ...]], Callable[[], Any]],
        steps: int,
        wanted: str | None = None,
    ) -> None:
        self._begin, self._steps, self._wanted = begin, max(1, steps), wanted
        self._sources: dict[int, tuple[Any, Source]] = {}
        self._fed: Source | None = None
        self.refused: BottleneckError | None = None
        """Reason why the loop could not be fed and continues with its own batches; None otherwise."""
        self._is_over = False
        """True after the context; a loader may still keep one of our iterators."""
        self._learning: tuple[Moves, int] | None = None
        self._within_update = 0
        """Batches since the loop could have been fed, except for an update that had begun."""
        self._compiling: Any = None
        self.loop = Loop()
        self.next_batch: Callable[[], Any] = lambda: None
        self.is_measuring: Callable[[], bool] = lambda: False
        """Function that returns True while the diagnosis runs, which has its own loaders, and not the loop."""
        self.own_pace: OwnPace | None = None
        """Timer of the loop with its own batches before it is fed; None: not needed."""
        self.waited_elsewhere_s = 0.0
        """Seconds for which the loop waited for other loaders since it is fed."""
        self.elsewhere = Elsewhere(self.loop, lambda: self.optimizer_steps, lambda: self.others)
        self.first_epochs = FirstEpochs(lambda: self.optimizer_steps)
        self.start_up = StartUp()
        self.order = StepOrder()
        self.optimizer_steps = 0
        self.trains_in: int | None = None
        """Identifier of the thread of the last step; None until a step is seen outside of a backward pass."""
        self._optimizers: dict[int, Any] = {}
        self.models: Any = None
        """Trained modules, if there is no PyTorch optimizer."""
        self._streams: dict[int, DataLoader[Any]] = {}
        self._process = os.getpid()
        self._ends = contextlib.ExitStack()
        self._passes = Passes(self._begin_pass, self._begin_again)
        self.backward = BackwardPasses(self._passed_back)
        self.refuse: Callable[[UsageError], None] = _raise
        """Function that gets the reason why the wanted loader cannot be diagnosed."""

    @property
    def sources(self) -> list[Source]:
        """Sources that have been iterated, in the order of their first pass."""
        return [source for _, source in list(self._sources.values())]  # another thread may ask

    def __enter__(self) -> Watch:
        self._process = os.getpid()
        self._ends.enter_context(self._passes)
        self._ends.enter_context(self.backward)
        wrapped.open_watched, wrapped.may_train = self._open, self._may_train
        self._ends.callback(setattr, wrapped, "open_watched", None)
        self._ends.callback(setattr, wrapped, "may_train", None)
        self._ends.callback(register_optimizer_step_post_hook(self._stepped).remove)
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self.start_up.end()
        self.first_epochs.close()
        self.stop_learning()
        if self._compiling is not None:
            with contextlib.suppress(ValueError):  # `torch._dynamo.reset` has removed it
                self._compiling.remove_start_callback(self._compiles)
        self._ends.close()

    @property
    def _is_elsewhere(self) -> bool:
        """True if the caller is the diagnosis, or a child process, which inherits our hooks and feeds no loop."""
        return self.is_measuring() or os.getpid() != self._process

    def pass_begins(self) -> None:
        """Note that a pass over any loader begins."""
        self.stop_learning()
        self.loop.breaks += 1

    def _begin_pass(self, loader: DataLoader[Any], begin: Begin) -> Iterator[Any] | None:
        if self._is_elsewhere:
            return None
        self.pass_begins()
        source = self._source_of(loader)
        self.start_up.pass_begins(source)
        return WatchedIterator(self, source, loader, begin)

    def _begin_again(self, loader: DataLoader[Any]) -> None:
        """Note that a loader with its own `__iter__` begins a pass, possibly over an iterator that it has kept."""
        if self._is_elsewhere:
            return
        self.pass_begins()
        for name in held_iterators(loader):
            if isinstance(kept := vars(loader)[name], WatchedIterator):
                kept.begin_pass()
                kept.goes_elsewhere(time.perf_counter())

    def _open(self, batches: Any) -> Iterator[Any]:
        """Return the iterator over batches wrapped by `bottleneck.watch`."""
        if not isinstance(batches, DataLoader) or id(batches) in self._streams:
            return self._open_stream(batches, lambda _: iter(batches))
        source = self._source_of(batches)
        source.is_wrapped = True
        found = iter(batches)
        return found if isinstance(found, WatchedIterator) else self._check_seen(batches, source, found)

    def _may_train(self) -> bool:
        """Return True if a call of a wrapped function may be training; note a call in an evaluation as a break."""
        trains = torch.is_grad_enabled() and not self._is_elsewhere
        if not trains and not self._is_elsewhere:
            self.loop.breaks += 1
        return trains

    def _open_stream(self, batches: Any, begin: Begin) -> Iterator[Any]:
        loader = self._streams.setdefault(id(batches), stream_loader(batches))
        self._source_of(loader).is_wrapped = True
        found = self._begin_pass(loader, begin)
        return begin(loader) if found is None else found

    def _check_seen(self, loader: DataLoader[Any], source: Source, found: Iterator[Any]) -> Iterator[Any]:
        """Iterate a DataLoader with its own kind of iterator, as a stream unless that uses PyTorch's."""
        asked = source.batches
        given = itertools.chain(list(itertools.islice(found, 1)), found)
        if source.batches == asked and not self.is_fed(source):
            source.is_wrapped = False
            yield from self._open_stream(loader, lambda _: given)
        yield from given

    def _source_of(self, loader: DataLoader[Any]) -> Source:
        if self._fed is not None and id(loader.dataset) not in self._sources:
            # Some scripts make another dataset, too: one of the same class is fed once it trains.
            same = type(loader.dataset) is type(self._fed.loader.dataset)
            return self._fed if same else Source(loader)  # no longer needed
        # The dataset is kept, so that no other gets its identity.
        return self._sources.setdefault(id(loader.dataset), (loader.dataset, Source(loader)))[1]

    def _stepped(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        self.optimizer_steps += 1
        self.order.steps()
        # Within a backward pass on a device, that is an autograd thread.
        if torch._C._current_graph_task_id() == -1:
            self.trains_in = threading.get_ident()
        if self._fed is None:
            self._optimizers[id(optimizer)] = optimizer
        elif id(optimizer) not in self._optimizers:
            return  # it belongs to another training
        for source in self.sources:
            self.count_step(source)

    def _passed_back(self, roots: Any) -> None:
        """Note a backward pass, which counts as a step if there is no PyTorch optimizer."""
        self.order.passes_back(roots)
        if self._optimizers or not self.backward.may_be_steps:
            return
        if self.models is None and self._fed is None:
            self.models = self.backward.models()
        self.trains_in = threading.get_ident()
        for source in self.sources:
            self.count_step(source)

    def count_step(self, source: Source) -> None:
        """Note an optimizer step, or its replacement, for a source."""
        # Of a validation in between only the last batch is followed by a step.
        giver, source.given_by = source.given_by, None
        if giver is not None:
            is_first, giver.trains = not giver.trains, True
            source.loader = source.loader if giver.loader is None else giver.loader
            if self._fed is None:
                if is_first and self.trains_most(source):
                    self.first_epochs.begins(giver)
                source.passes += is_first
                source.began_s = giver.began_s if is_first else source.began_s
                source.per_step.append(giver.given)
            else:
                source.steps_beside += 1
            giver.given = 0

    def note_wait(self, source: Source, seconds: float) -> None:
        """Note how long the loop waited for a batch of a source [s]."""
        self.start_up.gives(source, seconds)
        source.waited_s += seconds
        source.gave_s = time.perf_counter()
        if self._is_beside(source):
            self.waited_elsewhere_s += seconds

    @property
    def others(self) -> list[DataLoader[Any]]:
        """Other loaders that also give batches to the loop that is fed."""
        return [one.loader for one in self._able() if self._is_beside(one)]

    @property
    def starts_workers_for_each_batch(self) -> bool:
        """True if the loop that is fed starts workers for each batch; the diagnosis starts them once."""
        return self._fed is not None and self._fed.starts_workers_for_each_batch

    @property
    def restarts(self) -> dict[str, Any]:
        """Evidence on workers that started for each batch; empty if they did not."""
        fed = self._fed
        if fed is None or not fed.starts_workers_for_each_batch:
            return {}
        # The minimum, because the first steps warm up, and some are observed.
        return {"restarts": fed.passes, "restarting_step_s": min(fed.pass_s, default=None)}

    def _is_beside(self, source: Source) -> bool:
        """Return True if the loop also trains on another source; an occasional validation does not count.

        If the fed source was wrapped, the loaders in it are part of it.
        """
        fed = self._fed
        if fed is None or fed is source or (fed.is_wrapped and not source.is_wrapped):
            return False
        return source.steps_beside > 1 and source.steps_beside >= _BESIDE_SHARE * fed.steps_beside

    @property
    def names(self) -> list[str]:
        """Numbers and names of the sources, for a sentence: `0 (Photos)`."""
        return [f"{number} ({name})" for number, name in map(self._names_of, self.sources)]

    def _names_of(self, source: Source) -> tuple[str, str]:
        return str(self.sources.index(source)), type(source.loader.dataset).__name__

    @property
    def is_feeding(self) -> bool:
        """True if the diagnosis has begun to feed a loop."""
        return self._fed is not None

    def give_up(self, why: BottleneckError) -> None:
        """Let the loop continue with its own batches."""
        self.refused, self._fed = why, None

    def is_fed(self, source: Source) -> bool:
        """Return True if the diagnosis provides the batches of a source."""
        return self._fed is source and not self._is_over

    def _able(self) -> list[Source]:
        """Return the sources that may be diagnosed: if any is wrapped, only wrapped ones."""
        return [one for one in self.sources if one.is_wrapped or not self.has_wrapped]

    @property
    def has_wrapped(self) -> bool:
        """True if a loop has asked for batches wrapped by `bottleneck.watch`: then that loop is diagnosed."""
        return any(source.is_wrapped for source in self.sources)

    def learns_of(self, source: Source) -> bool:
        """Return True if the loop's work on the next batch is observed: up to the first step, and before the diagnosis.

        It is not once anything was compiled, which would be compiled again for observed steps.
        """
        is_wanted = not source.steps or source.steps == self._steps - 1
        is_open = self._fed is None and not self._is_over
        if self.own_pace is not None and self.own_pace.is_watching(source):
            return False
        return is_open and is_wanted and torch.is_grad_enabled() and not has_compiled()

    def learn(self, source: Source, batch: Any) -> None:
        """Begin to observe the loop's work on a batch."""
        if self._learning is not None:  # in another thread
            return
        compiling = getattr(sys.modules.get("torch._dynamo.callback"), "callback_handler", None)
        if compiling is not None and self._compiling is None:
            self._compiling = compiling
            compiling.register_start_callback(self._compiles)
        moves = source.moves  # another thread may give the source new ones
        moves.begin(batch)
        self._learning = moves, threading.get_ident()

    def _compiles(self, *_: object) -> None:
        """Stop observing: code compiled now would be compiled for observed steps."""
        self.stop_learning()

    def stop_learning(self) -> None:
        """Stop observing: the loop, or an evaluation in it, asks for the next batch, or is over."""
        # Only the observing thread can stop: an evaluation may run in another thread than the loader.
        if self._learning is not None and self._learning[1] == threading.get_ident():
            (moves, _), self._learning = self._learning, None
            moves.end()

    def feeds(self, source: Source, giver: WatchedIterator) -> bool:
        """Return True if the diagnosis provides the next batch of a source; it begins here, after enough steps.

        Args:
            source: The source.
            giver: The iterator that the loop asks for its batch.
        """
        if self._is_over or self.refused is not None:
            return False
        if self._fed is not None:
            return source is self._fed
        candidates = [one for one in self._able() if one.steps >= self._steps]
        if self._wanted is not None:
            candidates = [one for one in candidates if self._wanted in self._names_of(one)]
            # A validation before the first epoch has been followed by a step, once.
            fed_by = [self._names_of(one) for one in self._able() if one.steps > 1]
            if source.steps >= _SURE_STEPS and fed_by and not any(self._wanted in names for names in fed_by):
                self.refuse(_lacking(self._wanted, fed_by))  # at once, as the script may run for days
        if self.first_epochs.spent_s:
            candidates = [one for one in candidates if one is source or not _was_replaced(one, source, giver)]
        # Starting workers for each batch is not measured for the fed loader; for a loop's other loaders it is.
        if source not in candidates or source is not max(
            candidates, key=lambda one: (not one.starts_workers_for_each_batch, one.waited_s)
        ):
            return False
        self.first_epochs.begins(giver)
        if not self._is_ready(source, giver):
            return False
        self._fed = source
        self.loop.batches_per_update = statistics.median_low(source.per_step)
        self.loop.batches_ahead = self.loop.batches_per_update
        self.loop.has_queue = self.trains_in not in (None, threading.get_ident())
        self.next_batch = self._begin(source, tuple(self._optimizers.values()))
        return True

    def trains_most(self, source: Source) -> bool:
        """Return True if most steps follow a source: of a validation, only the last batch is followed by one."""
        return source.steps > 0 and source.steps == max(one.steps for one in self.sources)

    def goes_on_fed(self, source: Source, giver: WatchedIterator) -> bool:
        """Return True if the diagnosis begins at the end of a pass that was waited for, because it was the last."""
        if self._fed is not None or not self.first_epochs.is_last(giver):
            return False
        source.given_by = None  # an update that it had begun is not waited for
        return self.feeds(source, giver)

    def _is_ready(self, source: Source, giver: WatchedIterator) -> bool:
        """Return True if no further step with a real batch is needed; one rank of several may not wait alone.

        If gradients are accumulated, feeding begins with the first batch of an update; a loop that takes its batches
        far ahead never shows that batch.
        """
        if world_size() > 1:
            return True
        if self.trains_in in (None, threading.get_ident()) and self.first_epochs.waits(giver):
            return False
        if self.own_pace is not None:
            if not self.own_pace.ask(source, self.loop.breaks, arrived_in(giver) or 0):
                return False
            self.loop.own_s_per_batch = self.own_pace.seconds_per_batch
        elif not self.first_epochs.spent_s:
            return True
        self._within_update = self._within_update + 1 if source.given_by is not None else 0
        return self._within_update in (0, 2 * statistics.median_low(source.per_step))


def _was_replaced(one: Source, source: Source, giver: WatchedIterator) -> bool:
    """Return True if a source gave the batches of an earlier epoch, in a script that makes a dataset for each."""
    return type(one.loader.dataset) is type(source.loader.dataset) and one.gave_s < giver.began_s


def _lacking(wanted: str, fed_by: Sequence[tuple[str, str]]) -> UsageError:
    near = difflib.get_close_matches(wanted, [name for _, name in fed_by], n=1)
    listed = ", ".join(f"{number} ({name})" for number, name in fed_by)
    remedy = f"It takes its batches from {listed}."
    return UsageError(
        f"The training loop takes no batches from a loader called {wanted!r}.",
        f"Did you mean {near[0]!r}? {remedy}" if near else remedy,
    )


def _raise(error: UsageError) -> None:
    raise error
