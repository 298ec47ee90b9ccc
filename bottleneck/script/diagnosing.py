"""Diagnose the job that a running script is: find its training loop, and feed it with the experiments."""

from __future__ import annotations

import contextlib
import copy
import functools
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch.optim.lr_scheduler import LRScheduler

from bottleneck.api import Attempt, attempt_diagnosis
from bottleneck.errors import BottleneckError, MeasurementError, UsageError
from bottleneck.job import containers
from bottleneck.job.pipeline import Pipeline
from bottleneck.job.step import resolve_device
from bottleneck.job.users_code import users_traceback
from bottleneck.job.world import world_size
from bottleneck.loader import trees
from bottleneck.measure.device import devices_of
from bottleneck.measure.explain_errors import one_line
from bottleneck.measure.loop import Loop
from bottleneck.measure.options import MeasureOptions
from bottleneck.measure.progress import ProgressCallback, ProgressUpdate
from bottleneck.results.records import Warning
from bottleneck.script.ends import GRACE_S
from bottleneck.script.feed import Feed
from bottleneck.script.loop_time import LoopTime
from bottleneck.script.moves import Moves
from bottleneck.script.not_found import Notice, not_found
from bottleneck.script.one_loader import of_new_workers, of_one_loader
from bottleneck.script.ranks import OwnRanks, check_group
from bottleneck.script.saved import Saved
from bottleneck.script.source import Source
from bottleneck.script.trained import Optimizers, models_of
from bottleneck.script.watch import Watch

_STEP = LRScheduler.step
_PLAN_ENDED = "Tried to step"
"""How PyTorch begins to say that a learning rate was planned for so many steps."""
_FROM_SEVERAL_THREADS = MeasurementError(
    "The loop takes its batches in several threads, now in one and now in another, and only one can be fed.",
    "Let a single thread take all of them, such as that of ThreadPoolExecutor(max_workers=1).",
)
_NO_MOVE = "the loop was not seen to move any part of its batch to the device"
_NEEDED = "what the loop moves to the device, it also uses on the CPU: it reads or pins it there"
_THERE_ALREADY = "the batches that the loop gets are on the device already"


class Diagnosing:
    """Watches the process while it is entered, and diagnoses its training loop once that is found.

    Args:
        options: Of the diagnosis.
        finish: Called in the place of the batch after the last one, with what gives the outcome or raises why there is
            none; it does not return.
        progress: Called between blocks.
        skip_steps: Steps of real training before the measuring.
        loader: Which loader, where several feed the loop; see `Watch`.
    """

    _is_entered: ClassVar[bool] = False

    def __init__(
        self,
        options: MeasureOptions,
        finish: Callable[[Callable[[], Attempt]], Any],
        progress: ProgressCallback | None = None,
        skip_steps: int = 3,
        loader: str | None = None,
    ) -> None:
        self._options, self._finish, self._progress = options, finish, progress
        self._watch = Watch(self._begin, skip_steps, loader)
        self._watch.refuse = self._refuse
        self._own_ranks = OwnRanks(self._refuse)
        self._feed: Feed[Attempt | BottleneckError] | None = None
        self._source: Source | None = None
        self._finishing = threading.Lock()
        self._finisher: int | None = None
        self._schedules: dict[int, tuple[Any, Any]] = {}
        self._saved = Saved()
        self._loop_time = LoopTime(elsewhere=lambda: self._watch.waited_elsewhere_s)

    def __enter__(self) -> Diagnosing:
        if Diagnosing._is_entered:
            raise UsageError("A diagnosis of this process runs already.", "Let one end before the next one begins.")
        Diagnosing._is_entered = True
        self._own_ranks.__enter__()
        self._watch.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        Diagnosing._is_entered = False
        self._watch.__exit__()
        self._own_ranks.__exit__()
        self._saved.end()
        self._watch.next_batch = iter(()).__next__  # for iterators that are still there
        LRScheduler.step = _STEP  # type: ignore[method-assign]  # as it was
        for scheduler, state in self._schedules.values():
            scheduler.load_state_dict(state)

    def end(self, error: BaseException | None) -> Attempt:
        """The script has ended: return what was measured until then.

        Args:
            error: What it raised; None: it ran to its end.

        Raises:
            MeasurementError: Nothing was measured, with the reason.
        """
        if self._feed is None:
            raise self._not_found(error)
        reason = _early_end(error)
        if not self._feed.is_done:
            self._let_loop_end(reason)
        if self._feed.can_end_here:
            self._feed.end(reason)
        if self._feed.outcome is None:
            raise reason
        return self._attempt(self._feed)

    def leave(self, error: BaseException) -> None:
        """The process is about to end, anywhere in it: finish with what was measured until then.

        Args:
            error: Why; raised where it is the diagnosis itself that runs, which then ends by it.
        """
        if self._finisher == threading.get_ident() or (self._feed is not None and self._feed.runs_here):
            raise error
        self._let_loop_end(_early_end(error))
        self._finish_once(lambda: self.end(error))

    @property
    def is_abandoned(self) -> bool:
        """Whether the loop is fed in another thread, for a training that was in this one, whose script has ended.

        That thread may wait for ever until its queue has room again.
        """
        feed = self._feed
        is_fed = feed is not None and not (feed.is_done or feed.can_end_here)
        return is_fed and self._watch.trains_in == threading.get_ident()

    def lent_s(self) -> float | None:
        """Return for how long the loop has had its batch; None while it has none of ours."""
        return None if self._feed is None else self._feed.lent_s()

    def _let_loop_end(self, reason: BaseException) -> None:
        """Where the loop runs in another thread, let that one finish: only there can the diagnosis go on."""
        if self._feed is None or self._feed.is_done or self._feed.can_end_here:
            return
        if self._feed.end_soon(reason):
            threading.Event().wait(GRACE_S)
        if self._finisher not in (None, threading.get_ident()):
            threading.Event().wait()  # until the process ends

    def _finish_once(self, outcome: Callable[[], Attempt]) -> Any:
        with self._finishing:
            is_first = self._finisher is None
            self._finisher = self._finisher or threading.get_ident()
        if not is_first and self._finisher != threading.get_ident():
            threading.Event().wait()  # until the process ends
        return self._finish(outcome)

    def _refuse(self, error: UsageError) -> None:
        self._finish_once(_raising(error))

    def _attempt(self, feed: Feed[Attempt | BottleneckError]) -> Attempt:
        if isinstance(feed.outcome, BottleneckError):
            raise feed.outcome
        assert feed.outcome is not None
        found, seen = feed.outcome.diagnosis, self._loop_time.evidence()
        verdict = of_one_loader(found.verdict, seen)
        changed = replace(
            found,
            verdict=of_new_workers(verdict) if self._watch.starts_workers_for_each_batch else verdict,
            evidence=replace(found.evidence, loop=seen),
            # What may do harm is not left out where there is room for a few.
            warnings=(*self._saved.warnings(), *found.warnings, *self._warnings()),
        )
        return replace(feed.outcome, diagnosis=changed)

    def _not_found(self, error: BaseException | None) -> BaseException:
        if error is not None and not isinstance(error, SystemExit | KeyboardInterrupt):
            return _raised(error, "The script raised before it was measured")
        why = not_found(self._watch, status=_exit_status(error), starts_processes=self._own_ranks.has_started_any)
        return KeyboardInterrupt(str(why)) if isinstance(error, KeyboardInterrupt) else why

    def notice(self, tell: Callable[[str], None]) -> Notice:
        """Return what tells, while the script goes on, that there is nothing to measure."""
        return Notice(self._watch, lambda: self._not_found(None), tell)

    def _warnings(self) -> Iterator[Warning]:
        in_the_loop = None if self._source is None else self._source.moves.in_the_loop
        if in_the_loop is not None:
            yield Warning(
                "input-in-loop",
                f"The loop {in_the_loop}: what it does with them before it trains is part of compute. In the "
                "dataset or the collate function, it would be measured as input, and workers would do it.",
            )
        if self._watch.loop.not_copied in (_NO_MOVE, _NEEDED):
            yield Warning(
                "copy-not-seen",
                f"There is no stage `copy`: {self._watch.loop.not_copied}. What the loop copies is part of compute.",
            )
        if self._watch.others:
            others = ", ".join(type(loader.dataset).__name__ for loader in self._watch.others)
            yield Warning(
                "several-loaders",
                f"The loop takes batches from other loaders as well ({others}), which went on as they are: what they "
                f"cost is in compute. --loader (in Python: loader) chooses: {', '.join(self._watch.names)}. All of "
                "them are measured as one where the loop is over bottleneck.watch(zip(...)).",
            )

    # --- in the loop ---------------------------------------------------------------------------------------

    def _begin(self, source: Source, optimizers: tuple[Any, ...]) -> Callable[[], Any]:
        try:
            check_group(world_size())
        except UsageError as error:
            self._refuse(error)
        self._source = source
        pipeline = _describe(source, optimizers, self._watch.models, self._watch.loop)

        def diagnose(step: Callable[[Any], None]) -> Attempt | BottleneckError:
            try:
                options = replace(self._options, source="script", loop=self._watch.loop)
                with self._loop_time as times:
                    return attempt_diagnosis(pipeline(times.watch(step)), options, self._tell)
            except BottleneckError as error:
                return error

        feed = self._feed = Feed(diagnose)
        self._watch.is_measuring = lambda: feed.runs_here
        feed.end_with_thread(_early_end(None))
        self._saved.begin()
        LRScheduler.step = self._planned_step()  # type: ignore[method-assign]  # until the end

        def next_batch() -> Any:
            if feed.is_in_another_thread:
                self._finish_once(_raising(_FROM_SEVERAL_THREADS))
            batch = feed.next_batch()
            if feed.is_done:
                self._finish_once(lambda: self._attempt(feed))
                raise StopIteration
            return batch

        return next_batch

    def _tell(self, update: ProgressUpdate) -> None:
        self._loop_time.note_progress(update)
        if self._progress is not None:
            self._progress(update)

    def _keep_schedule(self, scheduler: Any) -> None:
        """Keep how far a schedule is, before the loop goes on with it for us."""
        if self._options.restore and id(scheduler) not in self._schedules:
            with contextlib.suppress(Exception):  # what gives no state is not put back
                self._schedules[id(scheduler)] = (scheduler, copy.deepcopy(scheduler.state_dict()))

    def _planned_step(self) -> Callable[..., None]:
        """Let a learning rate that was planned for so many steps stay where it is after them: we do more of them."""

        @functools.wraps(_STEP)
        def step(scheduler: Any, *args: Any, **kwargs: Any) -> None:
            self._keep_schedule(scheduler)
            try:
                _STEP(scheduler, *args, **kwargs)
            except ValueError as error:
                if not str(error).startswith(_PLAN_ENDED):
                    raise

        return step


def _describe(
    source: Source, optimizers: tuple[Any, ...], models: Any, loop: Loop
) -> Callable[[Callable[[Any], None]], Pipeline]:
    """Return what describes the job of a loop, once its step is known; notes in the loop who copies its batches."""
    models = models_of(optimizers) if optimizers else models
    together = Optimizers.of(optimizers)
    device = _device_of(optimizers) or next(iter(devices_of(models)), None) or _device_without(source)
    transfer = source.moves.learnt()
    loop.copies = True
    if device.type != "cpu" and not transfer.moved:
        loop.not_copied = _why_not_copied(source.moves)
    return lambda step: Pipeline.from_loader(
        source.loader,
        train_step=_with_containers_of_its_own(step) if source.moves.are_written else step,
        model=models,
        optimizer=together,
        device=device,
        to_device=transfer if device.type != "cpu" else None,
    )


def _with_containers_of_its_own(step: Callable[[Any], None]) -> Callable[[Any], None]:
    """Return the step of a loop that puts other things into its batches: those of a cache are to stay as they are."""
    return lambda batch: step(trees.map_leaves(_with_attributes_of_its_own, batch))


def _with_attributes_of_its_own(leaf: Any) -> Any:
    if not trees.is_primitive(leaf) and containers.inside(leaf):  # such as a graph, which moves itself in place
        with contextlib.suppress(Exception):  # any user type may refuse
            return copy.copy(leaf)
    return leaf


def _why_not_copied(moves: Moves) -> str:
    if moves.moves_any:
        return _NEEDED
    return _THERE_ALREADY if moves.arrive_on_device else _NO_MOVE


def _raising(error: BottleneckError) -> Callable[[], Attempt]:
    def outcome() -> Attempt:
        raise error

    return outcome


def _exit_status(error: BaseException | None) -> int:
    """What the process of a script that ended so would have as its exit status, as Python has it."""
    if not isinstance(error, SystemExit) or error.code is None:
        return 0
    return error.code if isinstance(error.code, int) else 1


def _early_end(error: BaseException | None) -> BaseException:
    if isinstance(error, KeyboardInterrupt | MeasurementError):
        return error
    if error is None or isinstance(error, SystemExit):
        return MeasurementError(
            "The script ended before the measuring did.", "Let it train for longer, or give a smaller budget."
        )
    return _raised(error, "The script raised while it was measured")


def _raised(error: BaseException, what: str) -> MeasurementError:
    return MeasurementError(
        f"{what}: {one_line(error)}",
        "It would by itself, too, unless it counts its steps, of which the measuring makes more; mend that first.",
        users_traceback(error),
    )


def _device_of(optimizers: Iterable[Any]) -> torch.device | None:
    """Where the parameters are that an optimizer steps."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                device: torch.device = parameter.device
                return device
    return None


def _device_without(source: Source) -> torch.device:
    """Where a loop computes of which no model is known, as far as its batches say."""
    is_on_device = source.moves.moves_any or source.moves.arrive_on_device
    return resolve_device(None) if is_on_device else torch.device("cpu")
