"""Find the training loop of a running script, and feed it the batches of a measurement."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, ClassVar, Generic, NoReturn, TypeVar

from bottleneck.errors import BottleneckError, MeasurementError, UsageError
from bottleneck.job.pipeline import Pipeline
from bottleneck.job.world import world_size
from bottleneck.measure.options import MeasureOptions, ProgressCallback, ProgressUpdate
from bottleneck.results.evidence import LoopSeen
from bottleneck.results.records import Warning
from bottleneck.results.watched import WatchedResult
from bottleneck.script.around import Within
from bottleneck.script.endings import early_end, raised_before
from bottleneck.script.feed import Feed
from bottleneck.script.inside import watch_inside
from bottleneck.script.iterators import Source
from bottleneck.script.job import describe, models_of
from bottleneck.script.launch import GRACE_S
from bottleneck.script.look import Look
from bottleneck.script.loop_warnings import warnings_of_loop
from bottleneck.script.not_found import Notice, OwnRanks, check_group, not_found
from bottleneck.script.schedules import Schedules
from bottleneck.script.seen import LoopTime, Saved
from bottleneck.script.starting import StartUp
from bottleneck.script.watch import Watch

_FROM_SEVERAL_THREADS = MeasurementError(
    "The loop takes its batches in several threads, now in one and now in another, and only one can be fed.",
    "Let a single thread take all of them, such as that of ThreadPoolExecutor(max_workers=1).",
)

SKIPPED_STEPS = 3
"""Default number of real training steps before measuring begins."""

Outcome = TypeVar("Outcome")


class Measuring(Generic[Outcome]):
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
        finish: Callable[[Callable[[], Outcome]], Any],
        progress: ProgressCallback | None = None,
        skip_steps: int | None = None,
        loader: str | None = None,
    ) -> None:
        self._options, self._finish, self._progress = options, finish, progress
        self._watch = Watch(self._begin, SKIPPED_STEPS if skip_steps is None else skip_steps, loader)
        self._watch.refuse = self._refuse
        self._own_ranks = OwnRanks(self._refuse)
        self._feed: Feed[Outcome | BottleneckError] | None = None
        self._source: Source | None = None
        self._notice: Notice | None = None
        self._finishing = threading.Lock()
        self._finisher: int | None = None
        self._schedules = Schedules(restore=options.restore)
        self._saved = Saved()
        self._look: Look | None = None
        self._loop_time = LoopTime(
            elsewhere=lambda: self._watch.waited_elsewhere_s,
            breaks=lambda: self._watch.loop.breaks,
            order=self._watch.order,
        )

    def _measure(self, pipeline: Pipeline, options: MeasureOptions) -> Outcome:
        """Measure the loop's job, whose train step hands a batch to the loop."""
        raise NotImplementedError

    def _with_what_was_seen(self, outcome: Outcome) -> Outcome:
        """Return the outcome with the evidence on the loop."""
        raise NotImplementedError

    def begin_with(self, start_up: StartUp) -> None:
        """Watch the script from now on, as its beginning."""
        self._watch.start_up = start_up
        start_up.begin()

    def begin_within(self, within: Within | None) -> None:
        """Exclude the code around a `with` block from the training."""
        self._watch.first_epochs.within = within

    def __enter__(self) -> Measuring[Outcome]:
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
        self._schedules.end()

    def end(self, error: BaseException | None) -> Outcome:
        """Return the measurements so far, after the script has ended.

        Args:
            error: Exception of the script; None: it ran to its end.

        Raises:
            MeasurementError: Nothing was measured; the message gives the reason.
        """
        self._wait_for_another_end()
        if self._feed is None:
            raise self._not_found(error)
        reason = early_end(error, self._watch.backward.last_loss)
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
        self._let_loop_end(early_end(error, self._watch.backward.last_loss))
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

    def _finish_once(self, outcome: Callable[[], Outcome]) -> Any:
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

    def _attempt(self, feed: Feed[Outcome | BottleneckError]) -> Outcome:
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

    def _not_found(self, error: BaseException | None) -> BaseException:
        if self._watch.refused is not None and not isinstance(error, KeyboardInterrupt):
            return self._watch.refused
        if error is not None and not isinstance(error, SystemExit | KeyboardInterrupt):
            return raised_before(error)
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
        return warnings_of_loop(self._watch, self._source)

    # --- in the loop ---------------------------------------------------------------------------------------

    def _begin(self, source: Source, optimizers: tuple[Any, ...]) -> Callable[[], Any]:
        try:
            check_group(world_size())
        except UsageError as error:
            self._refuse(error)
        self._source = source
        models = models_of(optimizers) if optimizers else self._watch.models
        modules = () if models is None else models.modules()
        self._watch.loop.starting = self._watch.start_up.evidence(source, *optimizers, *modules)
        backward = self._watch.backward
        pipeline = describe(source, optimizers, models, self._watch.loop, last_loss=lambda: backward.last_loss)

        def measure(step: Callable[[Any], None]) -> Outcome | BottleneckError:
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
        self._schedules.begin()

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


def _raising(error: BottleneckError) -> Callable[[], NoReturn]:
    def outcome() -> NoReturn:
        raise error

    return outcome
