"""Diagnose the job in a running script: find its training loop, and feed it the batches of the experiments."""

from __future__ import annotations

import contextlib
import copy
import functools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, ClassVar, Generic, NoReturn, TypeVar

from torch.optim.lr_scheduler import LRScheduler

from bottleneck.api import Asked, Attempt, Diagnosis, attempt_diagnosis
from bottleneck.errors import BottleneckError, MeasurementError, UsageError
from bottleneck.job.pipeline import Pipeline
from bottleneck.job.users_code import users_traceback
from bottleneck.job.world import world_size
from bottleneck.measure.explain_errors import one_line
from bottleneck.measure.options import MeasureOptions, ProgressCallback, ProgressUpdate
from bottleneck.measure.rounds.schedule import total_budget_s
from bottleneck.results.evidence import LoopSeen
from bottleneck.results.records import Warning
from bottleneck.results.watched import WatchedResult
from bottleneck.script.around import Within, around_with
from bottleneck.script.feed import Feed
from bottleneck.script.inside import watch_inside
from bottleneck.script.iterators import Source
from bottleneck.script.job import NEEDED, NO_MOVE, describe
from bottleneck.script.launch import GRACE_S
from bottleneck.script.look import Look
from bottleneck.script.losses import loss_at_end
from bottleneck.script.not_found import Notice, OwnRanks, check_group, not_found
from bottleneck.script.seen import LoopTime, Saved, of_new_workers, of_one_loader
from bottleneck.script.starting import StartUp
from bottleneck.script.watch import Watch

_STEP = LRScheduler.step
_PLAN_ENDED = "Tried to step"
"""Beginning of PyTorch's message that a schedule has made all its planned steps."""
_FROM_SEVERAL_THREADS = MeasurementError(
    "The loop takes its batches in several threads, now in one and now in another, and only one can be fed.",
    "Let a single thread take all of them, such as that of ThreadPoolExecutor(max_workers=1).",
)


SKIPPED_STEPS = 3
"""Default number of real training steps before measuring begins."""
_MAX_WAIT_S, _WAIT_SHARE = 6.0, 0.15
"""Maximum wait for the first epochs to end, in seconds and as a share of the budget."""

A = TypeVar("A")


class Measuring(Generic[A]):
    """A context that watches the process, and measures its training loop once that is found.

    Args:
        options: Options of the measurement.
        finish: Called instead of giving another batch, with a function that returns the outcome or raises the
            reason for its absence; does not return.
        progress: Called between blocks.
        skip_steps: Real training steps before measuring begins; None: a few.
        loader: The loader to diagnose if several feed the loop; see `Watch`.
    """

    _is_entered: ClassVar[bool] = False

    def __init__(
        self,
        options: MeasureOptions,
        finish: Callable[[Callable[[], A]], Any],
        progress: ProgressCallback | None = None,
        skip_steps: int | None = None,
        loader: str | None = None,
    ) -> None:
        self._options, self._finish, self._progress = options, finish, progress
        self._watch = Watch(self._begin, SKIPPED_STEPS if skip_steps is None else skip_steps, loader)
        self._watch.refuse = self._refuse
        self._own_ranks = OwnRanks(self._refuse)
        self._feed: Feed[A | BottleneckError] | None = None
        self._source: Source | None = None
        self._notice: Notice | None = None
        self._finishing = threading.Lock()
        self._finisher: int | None = None
        self._schedules: dict[int, tuple[Any, Any]] = {}
        self._saved = Saved()
        self._look: Look | None = None
        self._loop_time = LoopTime(
            elsewhere=lambda: self._watch.waited_elsewhere_s,
            breaks=lambda: self._watch.loop.breaks,
            order=self._watch.order,
        )

    def _measure(self, pipeline: Pipeline, options: MeasureOptions) -> A:
        """Measure the loop's job, whose train step hands a batch to the loop."""
        raise NotImplementedError

    def _with_what_was_seen(self, outcome: A) -> A:
        """Return the outcome with the evidence on the loop."""
        raise NotImplementedError

    def begin_with(self, start_up: StartUp) -> None:
        """Watch the script from now on, as its beginning."""
        self._watch.start_up = start_up
        start_up.begin()

    def begin_within(self, within: Within | None) -> None:
        """Exclude the code around a `with` block from the training."""
        self._watch.first_epochs.within = within

    def __enter__(self) -> Measuring[A]:
        if Measuring._is_entered:
            raise UsageError("A diagnosis of this process runs already.", "Let one end before the next one begins.")
        Measuring._is_entered = True
        self._own_ranks.__enter__()
        self._watch.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        Measuring._is_entered = False
        self._watch.__exit__()
        self._own_ranks.__exit__()
        self._saved.end()
        self._watch.next_batch = iter(()).__next__  # for iterators that still exist
        LRScheduler.step = _STEP  # type: ignore[method-assign]  # the original
        for scheduler, state in self._schedules.values():
            scheduler.load_state_dict(state)

    def end(self, error: BaseException | None) -> A:
        """Return the measurements so far, after the script has ended.

        Args:
            error: Exception of the script; None: it ran to its end.

        Raises:
            MeasurementError: Nothing was measured; the message gives the reason.
        """
        self._wait_for_another_end()
        if self._feed is None:
            raise self._not_found(error)
        reason = self._early_end(error)
        if not self._feed.is_done:
            self._let_loop_end(reason)
        if self._feed.can_end_here:
            self._feed.end(reason)
        if self._feed.outcome is None:
            raise reason
        return self._attempt(self._feed)

    def leave(self, error: BaseException) -> None:
        """Finish with the measurements so far, because the process is about to end.

        Args:
            error: The reason; raised if the diagnosis itself is running, which then ends with it.
        """
        if self._finisher == threading.get_ident() or (self._feed is not None and self._feed.runs_here):
            raise error
        self._let_loop_end(self._early_end(error))
        self._finish_once(lambda: self.end(error))

    @property
    def is_abandoned(self) -> bool:
        """True if the script has ended in the training's thread while another thread is still fed.

        That thread may wait forever for room in its queue.
        """
        feed = self._feed
        is_fed = feed is not None and not (feed.is_done or feed.can_end_here)
        return is_fed and self._watch.trains_in == threading.get_ident()

    def lent_s(self) -> float | None:
        """Return how long the loop has had its batch [s]; None while it has none from the diagnosis."""
        return None if self._feed is None else self._feed.lent_s()

    def _let_loop_end(self, reason: BaseException) -> None:
        """Let a loop in another thread finish: the diagnosis can only continue there."""
        if self._feed is None or self._feed.is_done or self._feed.can_end_here:
            return
        if self._feed.end_soon(reason):
            threading.Event().wait(GRACE_S)
        self._wait_for_another_end()

    def _wait_for_another_end(self) -> None:
        """Wait until the process ends, if another thread has begun to end it."""
        if self._finisher not in (None, threading.get_ident()):
            threading.Event().wait()

    def _finish_once(self, outcome: Callable[[], A]) -> Any:
        return self._end_once(lambda: self._finish(outcome))

    def _end_once(self, end: Callable[[], Any]) -> Any:
        with self._finishing:
            is_first = self._finisher is None
            self._finisher = self._finisher or threading.get_ident()
        if not is_first and self._finisher != threading.get_ident():
            threading.Event().wait()  # until the process ends
        return end()

    def _refuse(self, error: UsageError) -> None:
        self._finish_once(_raising(error))

    def _attempt(self, feed: Feed[A | BottleneckError]) -> A:
        if isinstance(feed.outcome, BottleneckError):
            raise feed.outcome
        assert feed.outcome is not None
        return self._with_what_was_seen(feed.outcome)

    def _seen(self) -> LoopSeen:
        first, source = self._watch.first_epochs, self._source
        found = {} if self._look is None else self._look.evidence()
        return replace(
            self._loop_time.evidence(),
            **{**found, "lines": (*found.get("lines", ()), *first.lines())},
            between=first.evidence(None if source is None else source.loader, self._watch.loop.batches_per_update),
            steps=self._loop_time.steps,
            **self._watch.restarts,
            others=self._watch.elsewhere.evidence(),
            saves=self._saved.count,
            saving_s=self._saved.seconds,
        )

    def _early_end(self, error: BaseException | None) -> BaseException:
        if isinstance(error, KeyboardInterrupt | MeasurementError):
            return error
        if error is not None and not isinstance(error, SystemExit):
            return _raised(
                error,
                "The script raised while it was measured",
                "If it also raises without bottleneck, fix that first. A loop that counts the batches of its epoch may "
                "fail only here, because the epoch goes on: give it a longer epoch, or a shorter --budget.",
            )
        loss = loss_at_end(error, self._watch.backward.last_loss)
        if loss is None:
            return MeasurementError(
                "The script ended before the measurement did.", "Train for longer, or give a smaller --budget."
            )
        return MeasurementError(
            f"The script ended itself while it was measured, at a loss that is not finite ({loss}).",
            "The diagnosis trains on few batches, so it may be of its making: see whether the loss is finite without "
            "it, and if it is, diagnose with a smaller learning rate.",
        )

    def _not_found(self, error: BaseException | None) -> BaseException:
        if self._watch.refused is not None and not isinstance(error, KeyboardInterrupt):
            return self._watch.refused
        if error is not None and not isinstance(error, SystemExit | KeyboardInterrupt):
            return _raised(
                error, "The script raised before it was measured", "It would without bottleneck, too: fix that first."
            )
        code = error.code if isinstance(error, SystemExit) else None
        status = code if isinstance(code, int) else int(code is not None)  # as Python has it for `sys.exit("...")`
        why = not_found(self._watch, status=status, started=self._own_ranks.started)
        return KeyboardInterrupt(str(why)) if isinstance(error, KeyboardInterrupt) else why

    def notice(
        self, tell: Callable[[str], None], answer: Callable[[WatchedResult, BaseException], object] | None = None
    ) -> Notice:
        """Return the notice that there is nothing to measure, shown while the script continues.

        Args:
            tell: Gets the sentence.
            answer: Gets the observations of a training that cannot be measured, and the reason, and ends the process.
                None: nothing is watched.
        """

        why = functools.partial(self._not_found, None)

        def look_inside(seconds: float, trains_here: bool, pause: Callable[[float], None]) -> Callable[[], Any] | None:
            assert answer is not None
            found, refused = watch_inside(seconds, trains_here, pause), self._watch.refused
            if found is not None:
                # A loop that is refused now would be refused again.
                told = found if refused is None else replace(found, next=())
                return lambda: self._end_once(lambda: answer(told, why()))
            return None if refused is None else lambda: self._finish_once(_raising(refused))

        self._notice = Notice(self._watch, why, tell, None if answer is None else look_inside)
        return self._notice

    def _warnings(self) -> Iterator[Warning]:
        in_the_loop = None if self._source is None else self._source.moves.in_the_loop
        if in_the_loop is not None:
            yield Warning(
                "input-in-loop",
                f"The loop {in_the_loop}: what it does with them before it trains is part of compute. In the "
                "dataset or the collate function, it would be measured as input, and workers would do it.",
            )
        if self._watch.loop.not_copied in (NO_MOVE, NEEDED):
            yield Warning(
                "copy-not-seen",
                f"There is no stage `copy`: {self._watch.loop.not_copied}. What the loop copies is part of compute.",
            )
        if self._watch.others:
            others = ", ".join(type(loader.dataset).__name__ for loader in self._watch.others)
            yield Warning(
                "several-loaders",
                f"The loop takes batches from other loaders as well ({others}), which were not varied: their cost is "
                f"in compute. --loader (in Python: loader) chooses: {', '.join(self._watch.names)}. To measure all of "
                "them as one, loop over bottleneck.watch(zip(...)).",
            )

    # --- in the loop ---------------------------------------------------------------------------------------

    def _begin(self, source: Source, optimizers: tuple[Any, ...]) -> Callable[[], Any]:
        try:
            check_group(world_size())
        except UsageError as error:
            self._refuse(error)
        self._source = source
        self._watch.loop.starting = self._watch.start_up.evidence(source)
        backward = self._watch.backward
        pipeline = describe(
            source, optimizers, self._watch.models, self._watch.loop, last_loss=lambda: backward.last_loss
        )

        def measure(step: Callable[[Any], None]) -> A | BottleneckError:
            try:
                spent_s = self._watch.first_epochs.spent_s
                options = replace(self._options, source="script", loop=self._watch.loop, spent_s=spent_s)
                with self._loop_time as times:
                    job, loop = pipeline(times.watch(step)), self._watch.loop
                    loop.look = self._look = Look(
                        feed.asked_from, job.model, lambda: loop.breaks, lambda: self._watch.order.is_usual
                    )
                    loop.seen = self._seen
                    return self._measure(job, options)
            except BottleneckError as error:
                return error

        feed = self._feed = Feed(measure)
        self._watch.is_measuring = lambda: feed.runs_here
        self._saved.begin()
        LRScheduler.step = self._planned_step()  # type: ignore[method-assign]  # until the end

        def next_batch() -> Any:
            if feed.is_in_another_thread:
                return self._give_up(_FROM_SEVERAL_THREADS)
            batch = feed.next_batch()
            if feed.is_done:
                if isinstance(feed.outcome, UsageError):
                    return self._give_up(feed.outcome)
                self._finish_once(lambda: self._attempt(feed))
                raise StopIteration
            return batch

        return next_batch

    def _give_up(self, why: BottleneckError) -> None:
        """End with the reason why the loop cannot be fed; if it can be watched, let it use its own batches instead."""
        if self._notice is not None and self._notice.can_look_inside:
            self._watch.give_up(why)
            self._feed = None
            self._notice.begin_again()
        else:
            self._finish_once(_raising(why))

    def _tell(self, update: ProgressUpdate) -> None:
        self._loop_time.note_progress(update)
        if self._progress is not None:
            self._progress(update)

    def _planned_step(self) -> Callable[..., None]:
        """Keep a learning rate constant after its planned steps: the measurement makes more of them."""

        @functools.wraps(_STEP)
        def step(scheduler: Any, *args: Any, **kwargs: Any) -> None:
            if self._options.restore and id(scheduler) not in self._schedules:
                with contextlib.suppress(Exception):  # without a state, it is not restored
                    self._schedules[id(scheduler)] = (scheduler, copy.deepcopy(scheduler.state_dict()))
            try:
                _STEP(scheduler, *args, **kwargs)
            except ValueError as error:
                if not str(error).startswith(_PLAN_ENDED):
                    raise

        return step


class Diagnosing(Measuring[Attempt]):
    """A context that watches the process, and diagnoses its training loop once that is found.

    Unless the number of real steps is given, the measurement also waits for short epochs to end.
    """

    def __init__(
        self,
        options: MeasureOptions,
        finish: Callable[[Callable[[], Attempt]], Any],
        progress: ProgressCallback | None = None,
        skip_steps: int | None = None,
        loader: str | None = None,
    ) -> None:
        super().__init__(options, finish, progress, skip_steps, loader)
        if skip_steps is None:
            budget_s = total_budget_s(options.budget_s, quick=options.quick)
            self._watch.first_epochs.limit_s = min(_MAX_WAIT_S, _WAIT_SHARE * budget_s)

    def _measure(self, pipeline: Pipeline, options: MeasureOptions) -> Attempt:
        return attempt_diagnosis(pipeline, options, self._tell)

    def _with_what_was_seen(self, outcome: Attempt) -> Attempt:
        found = outcome.diagnosis
        # After the rounds the result contains it; the objects that kept it may have been restored since.
        seen = self._seen() if found.evidence.loop == LoopSeen() else found.evidence.loop
        verdict = of_one_loader(found.verdict, seen)
        changed = replace(
            found,
            verdict=of_new_workers(verdict) if self._watch.starts_workers_for_each_batch else verdict,
            evidence=replace(found.evidence, loop=seen),
            # Harmful effects come first: reports may have room for a few warnings only.
            warnings=(*self._saved.warnings(), *found.warnings, *self._warnings()),
        )
        return replace(outcome, diagnosis=changed)


def _raising(error: BottleneckError) -> Callable[[], NoReturn]:
    def outcome() -> NoReturn:
        raise error

    return outcome


def _raised(error: BaseException, what: str, hint: str) -> MeasurementError:
    return MeasurementError(f"{what}: {one_line(error)}", hint, users_traceback(error))


class Body(Generic[A]):
    """The value of a `with` statement, which holds the outcome of its loop after the block."""

    _attempt: A | None = None

    def _ended(self) -> A:
        if self._attempt is None:
            raise MeasurementError("Nothing has been measured.", "Look at it after the with block.")
        return self._attempt


class Run(Body[Attempt]):
    """The value of `diagnosing`, which holds the diagnosis of the loop after the block."""

    @property
    def diagnosis(self) -> Diagnosis:
        """The diagnosis, which is partial if the training ended or raised first.

        Raises:
            MeasurementError: Nothing has been measured, or not yet.
        """
        return self._ended().diagnosis


class _Measured(BaseException):
    """Raised to leave the body after the measurement: batches from caches are not training."""


@contextmanager
def diagnosing(  # noqa: PLR0913 - the options of the contract
    *,
    budget: str | float | None = None,
    quick: bool = False,
    seed: int = 0,
    cache_bytes: int | None = None,
    flamegraph: str | os.PathLike[str] | None = None,
    gpu_hour_price: float | None = None,
    trace: str | os.PathLike[str] | None = None,
    cold: bool = False,
    progress: ProgressCallback | None = None,
    loader: str | int | None = None,
    skip_steps: int | None = None,
) -> Iterator[Run]:
    """Diagnose the training loop that runs in the body, as `bottleneck run` does for a script.

    After the verdict the body is left, from within the loop and without an error. Model, optimizer, random numbers,
    loader and process are then restored to their state after the first steps of real training.

    All arguments except the following two are those of `diagnose`.

    Args:
        loader: The DataLoader to diagnose if several feed the loop: its number, or the name of its dataset's class.
        skip_steps: Training steps before measuring begins. None: three, and up to six seconds more if the first
            epochs end in that time and others follow, so that the work between two epochs is seen.

    Raises:
        UsageError: An option is invalid, or a diagnosis is running already.
        MeasurementError: The body ended before the measurement did, or the job could not be measured. The measurements
            so far are its `diagnosis` attribute. Exceptions of the body itself are raised unchanged.
    """
    asked = Asked(
        budget=budget, quick=quick, seed=seed, cache_bytes=cache_bytes, flamegraph=flamegraph,
        gpu_hour_price=gpu_hour_price, trace=trace, cold=cold, progress=progress,
    )  # fmt: skip
    run = Run()

    def begin(finish: Callable[[Callable[[], Attempt]], Any], *where: Any) -> Diagnosing:
        return Diagnosing(asked.options, finish, asked.progress, *where)

    with leaving(begin, run, skip_steps, loader):
        yield run
    asked.answer(run._ended())


@contextmanager
def leaving(
    begin: Callable[..., Measuring[A]], body: Body[A], skip_steps: int | None, loader: str | int | None
) -> Iterator[None]:
    """Run a body that trains, and leave it after the measurement, from within the loop and without an error.

    Args:
        begin: Gets the function to call at the end, `skip_steps` and `loader`, as for `Measuring`.
        body: Gets the outcome, even if the body raised an exception.

    Raises:
        UsageError: `skip_steps` is not a positive integer.
        MeasurementError: Nothing was measured.
    """
    is_number = isinstance(skip_steps, int) and not isinstance(skip_steps, bool)
    if skip_steps is not None and not (is_number and skip_steps >= 1):
        raise UsageError(f"skip_steps must be a whole number, 1 or more, not {skip_steps!r}.")
    outcomes: list[Callable[[], A]] = []

    def finish(outcome: Callable[[], A]) -> NoReturn:
        outcomes.append(outcome)
        raise _Measured

    measuring = begin(finish, skip_steps, None if loader is None else str(loader))
    measuring.begin_within(around_with())
    with measuring as inside:
        try:
            yield
        except BaseException as error:
            if not outcomes:
                with suppress(BottleneckError, KeyboardInterrupt):
                    body._attempt = inside.end(error)
                raise
        body._attempt = outcomes[0]() if outcomes else inside.end(None)
