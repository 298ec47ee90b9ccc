"""Errors of scripts that cannot be measured: the reason, the observations, and the line that helps."""

from __future__ import annotations

import functools
import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from itertools import dropwhile
from multiprocessing.process import BaseProcess
from typing import Any

from bottleneck.errors import MeasurementError, UsageError
from bottleneck.job.replaced import replace_function
from bottleneck.job.world import find_place
from bottleneck.results.format import plural
from bottleneck.script.watch import Watch

_PATIENCE_S = 30.0
_WATCHED_S = 14.0
"""Seconds of these in which a process is watched that trains without anything to measure."""
_ENDING_S = 3.0
"""Seconds in which the watching may end."""
_MAX_NAMES = 3
_FEW_TIMES = 10
"""Optimizer steps for each one that followed a batch, above which the batches come from elsewhere."""
_WRAP = "`for batch in bottleneck.watch({}):`"
_NO_LOADER = (
    f"Wrap what the loop takes its batches from: {_WRAP.format('batches')}. If a function makes each batch, wrap the "
    "function, and call it as before: `get_batch = bottleneck.watch(get_batch)`."
)
_NO_OPTIMIZER = f"If the loop only evaluates, or trains in another way, wrap its loader: {_WRAP.format('loader')}."
_ENDS_ANYWAY = "It would end like this without bottleneck, too: fix that first."
_TENSORFLOW = (
    f"It uses TensorFlow. If the loop is your own, wrap its dataset: {_WRAP.format('dataset')}. Keras' fit cannot be "
    "watched; use TensorBoard's profiler for it."
)


def not_found(watch: Watch, *, status: int = 0, started: Sequence[str] = ()) -> MeasurementError:
    """Return the reason why no loop was found.

    Args:
        watch: Observations of the script.
        status: Exit status of the script.
        started: The processes in which it may train: functions, and commands.
    """
    seen = f"Seen: {_seen(watch)}."
    ended = f" before it ended with exit status {status}" if status else ""
    trains = bool(watch.optimizer_steps or watch.backward.count)
    # If it trains in this process, its children make its batches.
    if not watch.sources and not trains and started:
        names = list(dict.fromkeys(started))
        command = next((name for name in names if " " in name), None)
        diagnose = "" if command is None else f"; or diagnose that: bottleneck run {command.partition(' ')[2]} ARGS"
        return MeasurementError(
            "The script iterated over no PyTorch DataLoader in its first process, and the processes that it started "
            f"({', '.join(names[:_MAX_NAMES])}) are not watched. {seen}",
            f"If it trains there, use an option of the script to train in the first process{diagnose}.",
        )
    if not watch.sources:
        remedy = _TENSORFLOW if "tensorflow" in sys.modules else _NO_LOADER
        return MeasurementError(
            f"The script iterated over no PyTorch DataLoader{ended}. {seen}", _ENDS_ANYWAY if status else remedy
        )
    if not (trains or watch.has_wrapped):
        return MeasurementError(
            f"No PyTorch optimizer made a step, and there was no backward pass. {seen}", _NO_OPTIMIZER
        )
    # A validation before the first epoch is followed by a step, once.
    steps = _steps(watch)
    if watch.optimizer_steps > _FEW_TIMES * steps or not steps:
        return MeasurementError(f"Hardly any batch of a DataLoader was followed by a training step. {seen}", _NO_LOADER)
    return MeasurementError(
        f"There were too few training steps between the batches of one loader. {seen}",
        "Train for longer, or give a smaller --skip-steps (in Python: skip_steps).",
    )


def _steps(watch: Watch) -> int:
    return sum(source.steps for source in watch.sources)


def _seen(watch: Watch) -> str:
    shown = [f"{type(one.loader.dataset).__name__} ({plural(one.batches, 'batch')})" for one in watch.sources]
    if len(shown) > _MAX_NAMES:
        shown[_MAX_NAMES:] = [f"{len(shown) - _MAX_NAMES} more loaders"]
    steps, passes = plural(watch.optimizer_steps, "optimizer step"), plural(watch.backward.count, "backward pass")
    return f"{', '.join(shown) or 'no DataLoader'}; {steps}, {passes}"


LookInside = Callable[[float, bool, Callable[[float], None]], Callable[[], object] | None]
"""Function that watches the process. It gets the number of seconds, True if this process trains and not only a child,
and a function that waits; it returns a function that ends the script with the verdict, or None."""


class Notice:
    """A message, shown once after a while, that a running script has nothing to measure: it may run for days.

    If it trains nevertheless, its process is watched, and ends with the verdict.

    Args:
        watch: Observations of the script.
        why: Returns the reason.
        tell: Gets the sentence, in another thread.
        look_inside: Watches the process, see `LookInside`. None: nothing is watched.
    """

    def __init__(
        self,
        watch: Watch,
        why: Callable[[], BaseException],
        tell: Callable[[str], None],
        look_inside: LookInside | None = None,
    ) -> None:
        self._watch, self._why, self._tell, self._look_inside = watch, why, tell, look_inside
        self._steps = self._looks = self._trained = 0
        self._has_told = False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._wait, name="bottleneck-notice", daemon=True)

    def __enter__(self) -> Notice:
        self._thread.start()
        return self

    @property
    def can_look_inside(self) -> bool:
        """True if a loop that cannot be fed is watched."""
        return self._look_inside is not None

    def begin_again(self) -> None:
        """Watch a loop that turned out impossible to feed, and continues with its own batches."""
        self._thread = threading.Thread(target=self._wait, name="bottleneck-notice", daemon=True)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread is not threading.current_thread():
            self._thread.join(_ENDING_S)

    def _wait(self) -> None:
        with suppress(FoundMeanwhile):
            while not self._over.wait(_PATIENCE_S - _WATCHED_S) and self.look(self._watched()):
                pass

    def _watched(self) -> Callable[[], object] | None:
        """Return a function that ends the script with a verdict on its process, or None, after a fixed time."""
        trained = self._watch.optimizer_steps + self._watch.backward.count
        trains_here, self._trained = trained > self._trained, trained
        if self._look_inside is None or self._comes_nearer:
            self._pass(_WATCHED_S)
            return None
        return self._look_inside(_WATCHED_S, trains_here, self._pass)

    @property
    def _comes_nearer(self) -> bool:
        return self._watch.refused is None and _steps(self._watch) > self._steps

    def _pass(self, seconds: float) -> None:
        if self._over.wait(seconds) or self._watch.is_feeding:
            raise FoundMeanwhile

    def look(self, end: Callable[[], object] | None = None) -> bool:
        """Report that there is nothing to measure, unless a loop was found; return True to look at the script again.

        Args:
            end: Ends the script with the verdict on its loop; None if nothing was seen.
        """
        self._looks += 1
        comes_nearer, self._steps = self._comes_nearer, _steps(self._watch)
        if self._watch.is_feeding:
            return False
        if comes_nearer:
            return True
        if end is not None:
            end()
        elif not self._has_told:
            so_far = f"Nothing to measure so far, after {self._looks * _PATIENCE_S:.0f} s"
            if self._watch.optimizer_steps + self._watch.backward.count < _FEW_TIMES:
                told = f"{so_far}. The script continues, and is measured as soon as it trains. If it already trains: "
            else:
                told = f"{so_far}, although the script trains. It continues; end it with Ctrl-C. "
            # On a separate line, in case the script draws a progress bar.
            self._tell(f"\n{told}{self._why()}")
            self._has_told = True
        return self._look_inside is not None


class FoundMeanwhile(Exception):
    """Raised if the script has ended, or its loop is measured: nothing is left to watch."""


def check_group(world: int, environment: Mapping[str, str] | None = None) -> None:
    """Refuse a script that was started in several processes without a common process group.

    Args:
        world: Number of ranks in the script's process group; 1 without any.
        environment: Environment of the process; None: that of this process.

    Raises:
        UsageError: Each process would be diagnosed separately.
    """
    place = find_place(environment)
    if world == 1 and place is not None:
        raise UsageError(
            f"{place.size_name} is {place.world}, and the script has joined no process group: each process would be "
            "diagnosed alone, while the others use the same cores.",
            f"Start it without a launcher and with {place.size_name} unset: bottleneck run train.py.",
        )


class OwnRanks:
    """A context that refuses, or notes, training in processes that the script starts itself.

    Args:
        refuse: Gets the reason why a script cannot be diagnosed, before it starts its ranks.

    Attributes:
        started: The processes that were started: functions, and commands that run Python.
    """

    MODULES = ("torch.multiprocessing", "torch.multiprocessing.spawn")

    def __init__(self, refuse: Callable[[UsageError], None]) -> None:
        self._refuse = refuse
        self._start_ranks = sys.modules[self.MODULES[0]].start_processes
        self._replaced = ExitStack()
        self.started: list[str] = []

    def __enter__(self) -> OwnRanks:
        replaced: tuple[tuple[Any, str, Callable[[Any], Any]], ...] = (
            (BaseProcess, "start", self._starting),
            (subprocess.Popen, "__init__", self._opening),
            *((sys.modules[name], "start_processes", lambda _: self._ranks) for name in self.MODULES),
        )
        for owner, name, wrap in replaced:
            self._replaced.callback(replace_function(owner, name, wrap))
        return self

    def __exit__(self, *_: object) -> None:
        self._replaced.close()

    def _starting(self, original: Callable[[BaseProcess], None]) -> Callable[[BaseProcess], None]:
        @functools.wraps(original)
        def start(process: BaseProcess) -> None:
            self.started.append(_name_of(process))
            original(process)

        return start

    def _opening(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def open_process(process: Any, args: Any, *more: Any, **options: Any) -> None:
            with suppress(Exception):  # any failure belongs to the script's own call
                self.started += _python_in(args)
            original(process, args, *more, **options)

        return open_process

    def _ranks(self, fn: Any, args: Any = (), nprocs: int = 1, join: bool = True, *more: Any, **options: Any) -> Any:
        """Replace `torch.multiprocessing.spawn`; run a single joined rank in this process."""
        if join and nprocs == 1:
            return fn(0, *args)
        if join:
            self._refuse(
                UsageError(
                    f"This script trains in {nprocs} processes that it starts by torch.multiprocessing.spawn, and "
                    "those are not watched.",
                    "Let it start a single one, by its own option or with CUDA_VISIBLE_DEVICES=0; or let a launcher "
                    f"start them: torchrun --nproc-per-node {nprocs} -m bottleneck run train.py.",
                )
            )
        return self._start_ranks(fn, args, nprocs, join, *more, **options)


def _name_of(process: BaseProcess) -> str:
    """Return the name of the script's function that a process runs, also if torch's own function calls it."""
    target, arguments = getattr(process, "_target", None), getattr(process, "_args", ())
    if getattr(target, "__module__", None) in OwnRanks.MODULES and arguments:
        target = arguments[0]
    return getattr(target, "__name__", type(process).__name__)


def _python_in(command: Any) -> list[str]:
    """Return Python and the script or module that a command runs with it; empty for any other command."""
    words = shlex.split(command) if isinstance(command, str) else [os.fspath(word) for word in command]
    name, is_option = os.path.basename(words[0]), lambda word: word.startswith("-") and word not in ("-m", "-c")
    rest = list(dropwhile(is_option, words[1:]))
    if not name.startswith("python") or not rest or rest[0] == "-c":
        return []
    return [" ".join([name, *rest[: 1 + (rest[0] == "-m")]])]
