"""Make batches for real, under frames that are named after their stages, so that a profiler sees them in the stack."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import lru_cache
from types import FunctionType
from typing import Any
from urllib.parse import quote, unquote

from bottleneck.loader.calls import Function, Tape
from bottleneck.loader.observe import StageCalls, base_stage
from bottleneck.loader.plan import Plan
from bottleneck.loader.user_code import UserCode, Work

STAGE_PREFIX = "stage:"
"""A frame whose function is called so, in this file, stands for a stage."""
UNKNOWN_STAGE = ""
"""Code whose stage the stack does not show."""


class StageFrames(Work):
    """Runs the user's code of one worker, each stage under a frame of its own."""

    def __init__(self, user_code: UserCode, tape: Tape) -> None:
        self._user_code, self._tape = user_code, tape
        self.plan = Plan("fetch")
        """How the dataset is cut."""
        self._calls = StageCalls(tape, self.plan)

    def fetch(self, request: Any) -> Any:
        return self._run_sample(self._user_code.fetch, request)

    def next_items(self) -> list[Any]:
        return [self._run_sample(self._user_code.next_item)]

    def collate(self, samples: Any) -> Any:
        return self._run("collate", self.plan.marks.collate, self._user_code.collate, samples)

    def _run_sample(self, function: Function, *args: Any) -> Any:
        return self._run(base_stage(self.plan), self.plan.marks.sample, function, *args)

    def _run(self, stage: str, marked: tuple[str, ...], function: Function, *args: Any) -> Any:
        self._calls = StageCalls(self._tape, self.plan, marked)
        with self._tape.answered_by(self._answer):
            return run_in_stage(stage, function, args, {})

    def _answer(self, site: str, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._calls.run(site, run_in_stage, function, args, kwargs)


def run_in_stage(stage: str, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a function from a frame that is named after a stage."""
    return _runner(stage)(function, args, kwargs)


def stage_of_frame(function: str, file: str) -> str | None:
    """The stage that a frame stands for; None for any other frame."""
    if not function.startswith(STAGE_PREFIX) or file != __file__:
        return None
    return unquote(function[len(STAGE_PREFIX) :])


def _run(function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return function(*args, **kwargs)


@lru_cache(maxsize=256)
def _runner(stage: str) -> Callable[..., Any]:
    # Quoted, because profilers write stacks as lines, with semicolons and spaces between their parts.
    name = STAGE_PREFIX + quote(stage, safe="")
    code = _run.__code__.replace(co_name=name)
    if sys.version_info >= (3, 11):
        code = code.replace(co_qualname=name)
    return FunctionType(code, globals(), name)
