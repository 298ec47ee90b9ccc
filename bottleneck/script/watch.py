"""Finding the loader that feeds the training: an optimizer steps between its batches.

One place is hooked, `DataLoader.__iter__`, through which wrappers and frameworks go as well. Until the training loader
is known its batches are the real ones, and those of all others stay so. What `bottleneck.watch` has wrapped needs
neither a DataLoader nor an optimizer.
"""

from __future__ import annotations

import difflib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import DataLoader

from bottleneck.script import batches as wrapped
from bottleneck.script.moves import Moves, Transfer
from bottleneck.script.stream import stream_loader

_ORIGINAL = DataLoader.__iter__


@dataclass(eq=False)
class Source:
    """What gives batches to a loop: a dataset, by whatever loaders, as some are made anew for each epoch."""

    loader: DataLoader[Any]
    """The last one."""
    given: int = 0
    """Batches since the last step of the optimizer."""
    steps: int = 0
    """Steps of the optimizer before each of which it gave a batch."""
    is_wrapped: bool = False
    """By `bottleneck.watch`: what the loop does with each batch is a step, whether or not an optimizer is in it."""
    waited_s: float = 0.0
    """How long the loop waited for its batches."""
    transfer: Transfer | None = None
    """Moves of a batch what the loop moves; None before that was seen."""

    def count_step(self) -> None:
        """Note that an optimizer has made a step, or what stands for it."""
        # Of a validation in between only the last batch is followed by a step.
        if self.given:
            self.steps, self.given = self.steps + 1, 0


class WatchedIterator:
    """The iterator of a DataLoader, until the diagnosis feeds the loop in its place.

    Args:
        watch: Is asked before each batch.
        source: What is noted of its batches.
        batches: The loader's own iterator; None: the diagnosis feeds the loop already.
    """

    def __init__(self, watch: Watch, source: Source, batches: Iterator[Any] | None) -> None:
        self._watch, self._source, self._batches = watch, source, batches
        self._loader = source.loader
        self._moves: Moves | None = None

    def __iter__(self) -> WatchedIterator:
        return self

    def __len__(self) -> int:
        return len(self._loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_batches"], name)

    def __next__(self) -> Any:
        self._stop_learning()
        if self._source.is_wrapped:
            self._source.count_step()
        if self._watch.feeds(self._source):
            self._close()
            return self._watch.next_batch()
        assert self._batches is not None
        began = time.perf_counter()
        batch = next(self._batches)
        self._source.waited_s += time.perf_counter() - began
        self._source.given += 1
        if self._watch.is_near(self._source):
            self._moves = Moves(batch)
            self._moves.__enter__()  # type: ignore[no-untyped-call]  # torch's
        return batch

    def _stop_learning(self) -> None:
        if self._moves is not None:
            self._moves.__exit__(None, None, None)  # type: ignore[no-untyped-call]  # torch's
            self._source.transfer, self._moves = self._moves.learnt(), None

    def _close(self) -> None:
        """Stop the workers: those of the diagnosis have taken their place."""
        stop = getattr(self._batches, "_shutdown_workers", None)
        self._batches = None
        if stop is not None:
            stop()
            # Those that the loader keeps from epoch to epoch are gone with them.
            self._loader._iterator = None


class Watch:
    """Watches all DataLoaders of the process while it is entered.

    Args:
        begin: Called once, with the source of the training's batches and the optimizers, before the batch that the
            diagnosis begins with; gives what the loop gets its batches from.
        steps: Steps of the optimizer before that.
        wanted: Which source to diagnose, where several feed a loop: its number, from 0 in the order in which they are
            first asked for a batch, or the name of its dataset's class. None: the one that is waited for the longest.
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
        self.next_batch: Callable[[], Any] = lambda: None
        self.others: list[DataLoader[Any]] = []
        """Loaders that give batches to the same loop."""
        self.optimizer_steps = 0
        self._optimizers: dict[int, Any] = {}
        self._streams: dict[int, DataLoader[Any]] = {}
        self._hook: Any = None

    @property
    def saw_a_loader(self) -> bool:
        return bool(self._sources)

    def __enter__(self) -> Watch:
        watch = self

        def watched_iter(loader: DataLoader[Any]) -> Any:
            source = watch._source_of(loader)
            return WatchedIterator(watch, source, None if source is watch._fed else _ORIGINAL(loader))

        DataLoader.__iter__ = watched_iter  # type: ignore[method-assign]  # the one hook
        wrapped.open_watched = self._open
        self._hook = register_optimizer_step_post_hook(self._stepped)
        return self

    def __exit__(self, *_: object) -> None:
        DataLoader.__iter__ = _ORIGINAL  # type: ignore[method-assign]  # as it was
        wrapped.open_watched = None
        if self._hook is not None:
            self._hook.remove()

    def _open(self, batches: Any) -> Iterator[Any]:
        """Return the iterator of what `bottleneck.watch` has wrapped."""
        is_loader = isinstance(batches, DataLoader)
        loader = batches if is_loader else self._streams.setdefault(id(batches), stream_loader(batches))
        source = self._source_of(loader)
        source.is_wrapped = True
        if is_loader:
            return iter(batches)
        return WatchedIterator(self, source, None if source is self._fed else iter(batches))

    def _source_of(self, loader: DataLoader[Any]) -> Source:
        if self._fed is not None and id(loader.dataset) not in self._sources:
            return Source(loader)  # the diagnosis's own, or of no interest any more
        # The dataset is kept, so that no other gets its identity.
        _, source = self._sources.setdefault(id(loader.dataset), (loader.dataset, Source(loader)))
        if source is not self._fed:
            source.loader = loader
        return source

    def _stepped(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        self.optimizer_steps += 1
        if self._fed is not None:
            return
        self._optimizers[id(optimizer)] = optimizer
        for _, source in self._sources.values():
            source.count_step()

    @property
    def names(self) -> list[str]:
        """What is known of the sources, for a sentence: `0 (Photos)`."""
        return [f"{number} ({name})" for number, name in self._numbered()]

    def _numbered(self) -> list[tuple[str, str]]:
        return [(str(at), type(dataset).__name__) for at, (dataset, _) in enumerate(self._sources.values())]

    def _names_of(self, source: Source) -> tuple[str, str]:
        at = [one for _, one in self._sources.values()].index(source)
        return self._numbered()[at]

    @property
    def lacks_wanted(self) -> bool:
        """Whether a source is wanted by a name that none of them has."""
        return self._wanted is not None and not any(self._wanted in names for names in self._numbered())

    def explain_lack(self) -> tuple[str, str]:
        """Return what is wrong with the name of the source that is wanted, and what to write instead."""
        near = difflib.get_close_matches(str(self._wanted), [name for _, name in self._numbered()], n=1)
        listed = f"There are {', '.join(self.names)}." if len(self.names) > 1 else f"There is {self.names[0]}."
        return f"No loader is called {self._wanted!r}.", f"Did you mean {near[0]!r}? {listed}" if near else listed

    @property
    def has_wrapped(self) -> bool:
        """Whether a loop has asked for what `bottleneck.watch` has wrapped: it is that loop, then."""
        return any(source.is_wrapped for _, source in self._sources.values())

    def is_near(self, source: Source) -> bool:
        """Whether the diagnosis begins with one of the next batches."""
        return self._fed is None and source.steps >= self._steps - 1

    def feeds(self, source: Source) -> bool:
        """Whether the diagnosis gives the batches of a source; it begins here, once there have been enough steps."""
        if self._fed is not None:
            return source is self._fed
        if source.steps < self._steps or (self.has_wrapped and not source.is_wrapped):
            return False
        candidates = [one for _, one in self._sources.values() if one.steps >= self._steps]
        if self._wanted is not None:
            candidates = [one for one in candidates if self._wanted in self._names_of(one)]
            if source not in candidates:
                return False
        if source is not max(candidates, key=lambda one: one.waited_s):
            return False
        self._fed = source
        self.others = [one.loader for _, one in self._sources.values() if one.steps and one is not source]
        self.next_batch = self._begin(source, tuple(self._optimizers.values()))
        return True
