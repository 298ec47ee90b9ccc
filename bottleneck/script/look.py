"""A look at a loop's ordinary steps, outside of the timed blocks: which lines take its time, and in which part.

A step has three parts: until the model is called, until the last optimizer has made its step, and the rest. If they
come in another order, as in loops that take their next batch between forward and backward pass, the step is one part.
"""

from __future__ import annotations

import bisect
import functools
import threading
import time
from collections.abc import Callable, Collection
from types import CodeType, FrameType
from typing import Any

from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook

from bottleneck.loader.observing.lines import LineSampler, line_within
from bottleneck.loader.observing.meter import Spent
from bottleneck.loader.observing.observation import Line
from bottleneck.measure.evidence.payload import has_compiled
from bottleneck.measure.evidence.stages import costliest_lines

INPUT, STEP, AFTER = "input", "step", "after"
_SECONDS, _MAX_STEPS = 1.0, 100
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_OF_MODELS = ("torch.", "accelerate.", "deepspeed.", "peft.")
"""Packages whose hooks compute what the model needs."""
_MAX_S = 2.0
"""Maximum seconds, including steps with evaluations, which do not count."""


class Look:
    """Observer of a loop during some steps.

    Args:
        asked_from: Returns the frames from which the loop has asked for its batch.
        model: Trained model, for its hooks; None if unknown.
        breaks: Returns the number of passes over any loader that the loop has begun.
        has_parts: Returns True if its steps come in the usual order.
        clock: Monotonic time in seconds.
        sampler: Samples the lines of the calling thread.
    """

    def __init__(
        self,
        asked_from: Callable[[], Collection[FrameType]],
        model: nn.Module | None,
        breaks: Callable[[], int],
        has_parts: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = time.perf_counter,
        sampler: Callable[[Callable[[FrameType, Spent], None]], Any] = LineSampler,
    ) -> None:
        self._asked_from, self._breaks, self._has_parts = asked_from, breaks, has_parts
        self._clock, self._sampler = clock, sampler
        self._hooks, self._hooked = _hooks_of(model)
        self._thread = 0
        self._around: Collection[FrameType] = ()
        self._model_s: float | None = None
        self._stepped_s: float | None = None
        self._synchronize: Callable[[], None] = lambda: None
        self._at_model: Callable[[], None] = lambda: None
        self._marks: list[tuple[float, float, float, float]] = []
        """Times of each step [s]: beginning, call of the model, end of the optimizer step, end."""
        self._samples: list[tuple[float, Line, Spent, bool]] = []
        """Samples of all steps: time [s], line, time spent, and True if taken in a hook."""
        self._steps, self._knows_model = 0, True
        self._input_s = self._after_s = self._all_s = 0.0

    def __call__(
        self,
        make_step: Callable[[], None],
        synchronize: Callable[[], None],
        at_model: Callable[[], None] = lambda: None,
    ) -> None:
        """Watch the loop, in its thread.

        Args:
            make_step: Lets the loop make one step.
            synchronize: Waits for the device.
            at_model: Called when the first step calls a model, within all contexts of the loop.
        """
        self._thread, self._synchronize, self._at_model = threading.get_ident(), synchronize, at_model
        hooks = [register_optimizer_step_post_hook(self._steps_optimizer)]
        if not has_compiled():  # compiled code has its hooks in it: with others it would be compiled again
            hooks.append(register_module_forward_pre_hook(self._calls_model))
        sampler, began_s = self._sampler(self._see), self._clock()
        sampler.start()
        try:
            while self._all_s < _SECONDS and self._steps < _MAX_STEPS and self._clock() - began_s < _MAX_S:
                self._watch_one(make_step)
        finally:
            sampler.stop()
            self._around = ()
            for hook in hooks:
                hook.remove()

    def _watch_one(self, make_step: Callable[[], None]) -> None:
        self._around, self._model_s, self._stepped_s = set(self._asked_from()), None, None
        breaks, began_s = self._breaks(), self._clock()
        make_step()
        ended_s = self._clock()
        if self._breaks() != breaks:  # it ended an epoch, or evaluated
            return
        self._steps += 1
        self._all_s += ended_s - began_s
        self._knows_model &= self._model_s is not None
        model_s, stepped_s = self._model_s or began_s, self._stepped_s or ended_s
        self._input_s += model_s - began_s
        self._after_s += ended_s - stepped_s
        self._marks.append((began_s, model_s, stepped_s, ended_s))

    # --- from hooks and the sampler ------------------------------------------------------------------------

    def _calls_model(self, module: nn.Module, _: Any) -> None:
        """Note the first call of any model, even one that is not trained; an augmentation has no parameters."""
        if self._model_s is None and threading.get_ident() == self._thread and any(True for _ in module.parameters()):
            self._model_s = self._clock()
            if not self._steps:
                self._at_model()

    def _steps_optimizer(self, *_: object) -> None:
        if threading.get_ident() == self._thread:
            self._synchronize()
            self._stepped_s = self._clock()

    def _see(self, innermost: FrameType, spent: Spent) -> None:
        at_s = self._clock()  # at once: the loop continues during the search for its line
        line = line_within(innermost, self._around)
        if line is not None:
            self._samples.append((at_s, line, spent, self._is_in_hook(innermost)))

    def _is_in_hook(self, innermost: FrameType) -> bool:
        frame: FrameType | None = innermost if self._hooks else None
        while frame is not None and frame.f_code not in self._hooks:
            frame = frame.f_back
        return frame is not None

    # --- results -------------------------------------------------------------------------------------------

    def evidence(self) -> dict[str, Any]:
        """Return the measurements, by their names in the evidence on a loop."""
        if not self._steps:
            return {}
        has_parts, lines, hooks_s = self._has_parts(), dict[tuple[str, Line], Spent](), 0.0
        for at_s, line, spent, is_hook in self._samples:
            part = self._part_at(at_s)
            if part is not None:
                hooks_s += is_hook * spent.wall_s
                lines.setdefault((part if has_parts else STEP, line), Spent()).add(spent)
        return {
            "watched_s": self._all_s / self._steps,
            "input_s": self._input_s / self._steps if self._knows_model and has_parts else None,
            "after_device_s": self._after_s / self._steps if has_parts else None,
            "hooks_s": hooks_s / self._steps if self._hooks else None,
            "hooked": self._hooked,
            "lines": tuple(line for part in (INPUT, STEP, AFTER) for line in costliest_lines(lines, part)),
        }

    def _part_at(self, at_s: float) -> str | None:
        """Return the part of a step in which a sample was taken; None if the step does not count."""
        at = bisect.bisect_left(self._marks, at_s, key=lambda mark: mark[0]) - 1
        if at < 0 or at_s > self._marks[at][-1]:
            return None
        _, model_s, stepped_s, _ = self._marks[at]
        return INPUT if at_s <= model_s else STEP if at_s <= stepped_s else AFTER


def _hooks_of(model: nn.Module | None) -> tuple[frozenset[CodeType], int]:
    """Return the code of hooks that are not part of the model, and the number of modules with any."""
    found: set[CodeType] = set()
    hooked = 0
    for module in () if model is None else model.modules():
        held = [module, *module.parameters(recurse=False)]
        hooks = [hook for one in held for name in _HOOKS for hook in (getattr(one, name, None) or {}).values()]
        codes = {code for hook in hooks if (code := _code_of(hook)) is not None}
        found |= codes
        hooked += bool(codes)
    return frozenset(found), hooked


def _code_of(hook: Any) -> CodeType | None:
    while isinstance(hook, functools.partial):
        hook = hook.func
    function = hook if hasattr(hook, "__code__") else type(hook).__call__
    is_models = str(getattr(function, "__module__", "")).startswith(_OF_MODELS)
    return None if is_models else getattr(function, "__code__", None)
