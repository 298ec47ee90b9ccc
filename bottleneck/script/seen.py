"""Observations of a loop: its time with a batch, split at the optimizer step, and the files that it saves."""

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

from bottleneck.job.replaced import replace_function
from bottleneck.measure.options import ProgressUpdate
from bottleneck.measure.passes.profile import shorten
from bottleneck.results.evidence import LoopSeen
from bottleneck.results.format import duration
from bottleneck.results.records import Verdict, Warning
from bottleneck.results.warnings.job import NEW_WORKERS
from bottleneck.results.warnings.unseen import saved_while_measured
from bottleneck.script.order import StepOrder


class LoopTime:
    """A context that adds up a loop's time with batches that are on the device already.

    Args:
        clock: Monotonic time in seconds.
        elsewhere: Returns the seconds for which the loop has waited for other loaders so far.
        breaks: Returns the passes over any loader begun so far: a batch in which the loop evaluates does not count.
        order: Order of a step: no parts are known unless it is the usual one.
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
        # Sums over all batches; plain numbers are not mistaken for a training state to be restored.
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
        """Count only the batches of `device`, for which the loop does not wait and no worker takes a core."""
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
        """Return a closure whose time is not the optimizer's: in Lightning it runs the forward and backward pass."""

        @functools.wraps(closure)
        def timed() -> Any:
            began_s = self._clock()
            try:
                return closure()
            finally:
                self._in_closure_s += self._clock() - began_s

        return timed

    def _after_step(self, *_: object) -> None:
        if threading.get_ident() != self._thread:  # another thread takes the batches, and only waits for this one
            return
        self._last_step_s = self._clock()
        self._optimizer_s += self._last_step_s - self._begun_s - self._in_closure_s

    def evidence(self) -> LoopSeen:
        """Return the means over all batches; empty if no optimizer made a step."""
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


_MATTERS = 0.05
"""Minimum share of a step that matters, as in a verdict."""


def of_one_loader(verdict: Verdict, seen: LoopSeen) -> Verdict:
    """Return a verdict without an efficiency if other loaders are waited for: that would count as the device's time.

    If one loader limits the job, it still does. It is no longer known if the device does.
    """
    parts_s = (seen.until_optimizer_s, seen.optimizer_s, seen.after_optimizer_s)
    step_s = sum(filter(None, parts_s)) if seen.batch_s is None else seen.batch_s
    waits_s = seen.other_loaders_s or 0.0
    if waits_s <= _MATTERS * step_s:
        return verdict
    named = (
        f" Of the one that was, {verdict.bottleneck} is the bottleneck."
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
    """Return a verdict without an efficiency for a loop whose workers start for each batch, which is not measured."""
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
    # All of safetensors' functions that write a file call it, under any name by which a library has imported them.
    ("safetensors.torch", "serialize_file", "filename", 1),
    # It writes a file with another name, after `torch.save` has written to memory.
    ("lightning.fabric.plugins.io.torch_io", "TorchCheckpointIO.save_checkpoint", "path", 2),
    ("lightning_fabric.plugins.io.torch_io", "TorchCheckpointIO.save_checkpoint", "path", 2),
)
"""Functions that save files: module, name in it, and name and position of the argument for the path."""
_MAX_NAMED = 3


class Saved:
    """Record of the files that a script saves with these functions, from `begin` to `end`.

    Only loaded modules are watched; another call of `begin` adds those loaded since. Writes to an open file are counted
    without a name.

    Args:
        see: Called after each save with its seconds, and the path, or None if unknown.
    """

    def __init__(self, see: Callable[[float, str | None], None] = lambda _, __: None) -> None:
        self._see = see
        self._saves = False
        self.count, self.seconds = 0, 0.0
        """Number of calls, and their total duration [s]."""
        self._replaced: list[tuple[Any, str, Any, Callable[[], None]]] = []
        self._files: dict[str, None] = {}
        self._folder = Path()

    def begin(self) -> None:
        """Begin to note files."""
        with contextlib.suppress(OSError):  # it was removed
            self._folder = Path.cwd()
        for module, name, argument, position in _SAVERS:
            *owners, function = name.split(".")
            owner: Any = sys.modules.get(module)
            for part in owners:
                owner = getattr(owner, part, None)
            original = getattr(owner, function, None)
            if original is not None and all(ours is not original for _, _, ours, _ in self._replaced):
                restore = replace_function(owner, function, functools.partial(self._noting, argument, position))
                self._replaced.append((owner, function, getattr(owner, function), restore))

    def end(self) -> None:
        """Restore the original functions."""
        while self._replaced:
            owner, name, noting, restore = self._replaced.pop()
            if getattr(owner, name) is noting:  # unless other code has replaced it since
                restore()

    def _noting(self, argument: str, position: int, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def save(*args: Any, **kwargs: Any) -> Any:
            if sys._getframe(1).f_globals.get("__name__") == "torch.storage":  # to pickle a tensor, not to a file
                return original(*args, **kwargs)
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
        """Yield a warning that lists the files, if there are any."""
        if not self._files:
            return
        named = [shorten(file, self._folder) for file in list(self._files)[:_MAX_NAMED]]
        yield saved_while_measured(named, more=len(self._files) - len(named))
