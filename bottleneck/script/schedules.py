"""Learning-rate schedules of a loop that makes more steps than they were planned for."""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Callable
from typing import Any

from torch.optim.lr_scheduler import LRScheduler

_STEP = LRScheduler.step
_PLAN_ENDED = "Tried to step"
"""Beginning of PyTorch's message that a schedule has made all its planned steps."""


class Schedules:
    """Keeps a learning rate constant after its planned steps: the measurement makes more of them.

    Args:
        restore: True if the schedules are restored at the end to their state at their first step.
    """

    def __init__(self, *, restore: bool) -> None:
        self._restore = restore
        self._states: dict[int, tuple[Any, Any]] = {}

    def begin(self) -> None:
        """Let schedules step past their plan, until the end."""
        LRScheduler.step = self._patient_step()  # type: ignore[method-assign]

    def end(self) -> None:
        """Restore PyTorch's method, and the state of each schedule."""
        LRScheduler.step = _STEP  # type: ignore[method-assign]
        for scheduler, state in self._states.values():
            scheduler.load_state_dict(state)

    def _patient_step(self) -> Callable[..., None]:
        @functools.wraps(_STEP)
        def step(scheduler: Any, *args: Any, **kwargs: Any) -> None:
            if self._restore and id(scheduler) not in self._states:
                with contextlib.suppress(Exception):  # without a state, it is not restored
                    self._states[id(scheduler)] = (scheduler, copy.deepcopy(scheduler.state_dict()))
            try:
                _STEP(scheduler, *args, **kwargs)
            except ValueError as error:
                if not str(error).startswith(_PLAN_ENDED):
                    raise

        return step
