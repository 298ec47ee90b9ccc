"""What is seen of a loop: its time with a batch, split at the optimizer's step, and the files that it saves."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from bottleneck.measure.options import ProgressUpdate
from bottleneck.measure.passes.profile import shorten
from bottleneck.results.evidence import LoopSeen
from bottleneck.results.format import duration, names, plural
from bottleneck.results.records import Verdict, Warning
from bottleneck.script.order import StepOrder


class LoopTime:
    """Adds up what a loop does with batches that are on the device already, while it is entered.

    Args:
        clock: Seconds from any beginning; monotonic.
        elsewhere: Seconds that the loop has waited for other loaders so far.
        breaks: Passes over any loader that it has begun so far: a batch in which it evaluates counts for nothing.
        order: Sees in which order a step goes: of another than the usual one no parts are known.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        elsewhere: Callable[[], float] = lambda: 0.0,
        breaks: Callable[[], int] = lambda: 0,
        order: StepOrder | None = None,
    ) -> None:
        self._clock, self._elsewhere, self._breaks = clock, elsewhere, breaks
        self._order = StepOrder() if order is None else order
        self._counts = False
        self.steps = 0
        """Batches of all experiments."""
        self._thread: int | None = None
        self._begun_s = self._in_closure_s = self._optimizer_s = 0.0
        self._last_step_s: float | None = None
        # Of all batches; plain numbers, which nobody takes for a state of the training that is to be put back.
        self._batches, self._all_s, self._in_optimizer_s, self._after_s, self._elsewhere_s = 0, 0.0, 0.0, 0.0, 0.0
        self._hooks: tuple[Any, ...] = ()

    def __enter__(self) -> LoopTime:
        self._hooks = (
            register_optimizer_step_pre_hook(self._before_step),
            register_optimizer_step_post_hook(self._after_step),
        )
        return self

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()

    def note_progress(self, update: ProgressUpdate) -> None:
        """Count the batches of `device` alone, where nothing is waited for and no worker takes a core."""
        self._counts = update.phase == "measuring" and update.experiment == "device"

    def watch(self, step: Callable[[Any], None]) -> Callable[[Any], None]:
        """Return a train step whose time is split."""

        def split(batch: Any) -> None:
            self.steps += 1
            if not self._counts:
                self._order.begins()
                step(batch)
                self._order.ends()
                return
            self._optimizer_s, self._last_step_s, self._thread = 0.0, None, threading.get_ident()
            began_s, waited_s, breaks = self._clock(), self._elsewhere(), self._breaks()
            step(batch)
            ended_s = self._clock()
            if self._breaks() != breaks:
                return
            self._batches += 1
            self._all_s += ended_s - began_s
            self._in_optimizer_s += self._optimizer_s
            self._after_s += 0.0 if self._last_step_s is None else ended_s - self._last_step_s
            self._elsewhere_s += self._elsewhere() - waited_s

        return split

    def _before_step(self, _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any] | None:
        self._begun_s, self._in_closure_s = self._clock(), 0.0
        if callable(kwargs.get("closure")):
            return args, {**kwargs, "closure": self._timed(kwargs["closure"])}
        if len(args) > 1 and callable(args[1]):  # after the optimizer itself
            return (args[0], self._timed(args[1]), *args[2:]), kwargs
        return None

    def _timed(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        """Forward and backward pass may run within the optimizer's step, as in Lightning: they are no part of it."""

        @functools.wraps(closure)
        def timed() -> Any:
            began_s = self._clock()
            try:
                return closure()
            finally:
                self._in_closure_s += self._clock() - began_s

        return timed

    def _after_step(self, *_: object) -> None:
        if threading.get_ident() != self._thread:  # batches are taken in another thread, which only waits for this one
            return
        self._last_step_s = self._clock()
        self._optimizer_s += self._last_step_s - self._begun_s - self._in_closure_s

    def evidence(self) -> LoopSeen:
        """Return the means; nothing where no optimizer made a step."""
        if not self._batches or not self._in_optimizer_s:
            return LoopSeen()
        until_s = self._all_s - self._in_optimizer_s - self._after_s
        each = 1 / self._batches
        if not self._order.is_usual:
            return LoopSeen(batches=self._batches, batch_s=self._all_s * each, other_loaders_s=self._elsewhere_s * each)
        return LoopSeen(
            batches=self._batches,
            until_optimizer_s=max(0.0, until_s) * each,
            optimizer_s=self._in_optimizer_s * each,
            after_optimizer_s=self._after_s * each,
            other_loaders_s=self._elsewhere_s * each,
        )


NEW_WORKERS = (
    "The loop begins a new pass over its loader for each batch, and its workers start again each time: the script is "
    "slower than what was measured, in which they go on. Take the iterator once, batches = forever(loader) with "
    "def forever(loader): while True: yield from loader, then next(batches) in the loop"
)
"""A sentence without its end, where workers start for each batch."""
_MATTERS = 0.05
"""Share of a step, from which on a loss is worth touching, as it is of a verdict."""


def of_one_loader(verdict: Verdict, seen: LoopSeen) -> Verdict:
    """A verdict without an efficiency, where other loaders are waited for: that would count as the device's time.

    That one loader holds the job stays true. That the device does is not known any more.
    """
    parts_s = (seen.until_optimizer_s, seen.optimizer_s, seen.after_optimizer_s)
    step_s = sum(filter(None, parts_s)) if seen.batch_s is None else seen.batch_s
    waits_s = seen.other_loaders_s or 0.0
    if waits_s <= _MATTERS * step_s:
        return verdict
    named = (
        f" Of the one that was, {verdict.bottleneck} holds the job."
        if verdict.state == "input_bound" and verdict.bottleneck
        else ""
    )
    sentence = (
        f"The loop waits for several loaders, and one of them was varied: with the batches of that one at hand a step "
        f"takes {duration(step_s)}, {duration(waits_s)} of it waits for others. What all of them cost is "
        f"not known.{named} Measure them as one: let the loop be over bottleneck.watch(zip(...))."
    )
    return _without_efficiency(verdict, sentence)


def of_new_workers(verdict: Verdict) -> Verdict:
    """A verdict without an efficiency, where workers start for each batch: what was measured does not hold that."""
    return _without_efficiency(verdict, f"{NEW_WORKERS}; and measure again.")


def _without_efficiency(verdict: Verdict, sentence: str) -> Verdict:
    is_held = verdict.state == "input_bound"
    return replace(
        verdict,
        state="input_bound" if is_held else "undecided",
        bottleneck=verdict.bottleneck if is_held else None,
        contributors=verdict.contributors if is_held else (),
        efficiency=None,
        headroom=None,
        loss=None,
        epoch_efficiency=None,
        judged_by="efficiency",
        further_rounds=None,
        sentence=sentence,
    )


_SAVERS = (
    ("torch", "save", "f", 1),
    # What all of safetensors' functions that write a file go through, under whatever name a library has imported them.
    ("safetensors.torch", "serialize_file", "filename", 1),
    # It makes the file of a name of its own, from what `torch.save` has written to memory.
    ("lightning.fabric.plugins.io.torch_io", "TorchCheckpointIO.save_checkpoint", "path", 2),
    ("lightning_fabric.plugins.io.torch_io", "TorchCheckpointIO.save_checkpoint", "path", 2),
)
"""Of each function: its module, its name there, the name of the argument that is the path, and the position."""
_MOST_NAMED = 3


class Saved:
    """Notes the files that a script saves by these functions, from `begin` to `end`.

    Seen is what is loaded by then; another call of `begin` adds what has been loaded since. What is written to a file
    that is open already has no name here.

    Args:
        see: Called after each with its seconds, and the path where there is one.
    """

    def __init__(self, see: Callable[[float, str | None], None] = lambda _, __: None) -> None:
        self._see = see
        self._saves = False
        self.count, self.seconds = 0, 0.0
        """Calls, and what they took."""
        self._replaced: list[tuple[Any, str, Any, Any]] = []
        self._files: dict[str, None] = {}
        self._folder = Path()

    def begin(self) -> None:
        """Note files from now on."""
        with contextlib.suppress(OSError):  # it was removed
            self._folder = Path.cwd()
        for module, name, argument, position in _SAVERS:
            *owners, function = name.split(".")
            owner: Any = sys.modules.get(module)
            for part in owners:
                owner = getattr(owner, part, None)
            original = getattr(owner, function, None)
            if original is not None and all(known is not original for *_, known in self._replaced):
                noting = self._noting(original, argument, position)
                self._replaced.append((owner, function, original, noting))
                setattr(owner, function, noting)

    def end(self) -> None:
        """Put everything back."""
        while self._replaced:
            owner, name, original, noting = self._replaced.pop()
            if getattr(owner, name) is noting:  # and nobody else has replaced it since
                setattr(owner, name, original)

    def _noting(self, original: Callable[..., Any], argument: str, position: int) -> Callable[..., Any]:
        @functools.wraps(original)
        def save(*args: Any, **kwargs: Any) -> Any:
            is_inner, began_s, self._saves = self._saves, time.perf_counter(), True
            try:
                done = original(*args, **kwargs)
            finally:
                self._saves = is_inner
            path = args[position] if len(args) > position else kwargs.get(argument)
            place = None
            if isinstance(path, str | os.PathLike):
                name = os.fsdecode(path)
                place = name if "://" in name else os.path.abspath(name)
                self._files[place] = None
            if not is_inner:
                took_s = time.perf_counter() - began_s
                self.count, self.seconds = self.count + 1, self.seconds + took_s
                self._see(took_s, place)
            return done

        return save

    def warnings(self) -> Iterator[Warning]:
        """Yield one that lists the files, if there are any."""
        if not self._files:
            return
        named = names([shorten(file, self._folder) for file in list(self._files)[:_MOST_NAMED]])
        more = len(self._files) - _MOST_NAMED
        files = f"{plural(len(self._files), 'file')}, such as {named}" if more > 0 else named
        yield Warning(
            "saved-while-measured",
            f"While it was measured, the training saved {files}. Weights in there were trained on the same few batches "
            "again and again: do not resume a training from them.",
        )
