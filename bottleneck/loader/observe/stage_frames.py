"""Make batches for real, under frames that are named after their stages, so that a profiler sees them in the stack."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from types import FunctionType
from typing import Any
from urllib.parse import quote, unquote

from bottleneck.job.marks import is_mark
from bottleneck.loader.observe.stage_calls import StageCalls, base_stage
from bottleneck.loader.record.plan import Plan
from bottleneck.loader.record.tape import Function, Tape
from bottleneck.loader.worker.user_code import Source

STAGE_PREFIX = "stage:"
"""A frame whose function is called so, in this file, stands for a stage."""
UNKNOWN_STAGE = ""
"""Code of which the stack does not tell the stage."""


class StageFrames:
    """Runs the user's code of one worker, each stage under a frame of its own.

    Args:
        source: The user's code.
        tape: The tape of the dataset's cuts.
    """

    def __init__(self, source: Source, tape: Tape) -> None:
        self._source, self._tape = source, tape
        self._calls = StageCalls(tape, Plan("fetch"))

    def fetch(self, plan: Plan, request: Any) -> Any:
        """Return what a request asks for.

        Raises:
            UserCodeError: If the user's dataset raised.
        """
        with self._answering(plan, plan.marks.sample):
            return run_in_stage(_base_stage(plan), self._source.fetch, (request,), {})

    def next_item(self, plan: Plan) -> Any:
        """Return the next item of a stream.

        Raises:
            UserCodeError: If the user's dataset raised.
        """
        with self._answering(plan, plan.marks.sample):
            return run_in_stage(_base_stage(plan), self._source.next_item, (), {})

    def collate(self, plan: Plan, samples: Any) -> Any:
        """Collate samples.

        Raises:
            UserCodeError: If the user's collate function raised.
        """
        with self._answering(plan, plan.marks.collate):
            return run_in_stage("collate", self._source.collate, (samples,), {})

    @contextmanager
    def _answering(self, plan: Plan, marked: tuple[str, ...]) -> Iterator[None]:
        self._calls = StageCalls(self._tape, plan, marked)
        with self._tape.answered_by(self._answer):
            yield

    def _answer(self, site: str, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        stage = self._calls.stage_of(site)
        if stage is None:
            return function(*args, **kwargs)
        if is_mark(site):
            return run_in_stage(stage, function, args, kwargs)
        self._calls.inside_cut = True
        try:
            return run_in_stage(stage, function, args, kwargs)
        finally:
            self._calls.inside_cut = False


def _base_stage(plan: Plan) -> str:
    # With `tail`, code outside the cuts loads before the augmentation and finishes after it, in the same frame.
    return base_stage(plan, of_tail=UNKNOWN_STAGE)


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
