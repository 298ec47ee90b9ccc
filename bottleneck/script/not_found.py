"""Why there is nothing to measure in a script, what was seen of it, and the line that helps."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence

from bottleneck.errors import MeasurementError
from bottleneck.script.iterators import Source
from bottleneck.script.watch import Watch

_PATIENCE_S = 30.0
_MOST_NAMES = 3
_FEW_TIMES = 10
"""Steps of optimizers for each one that followed on a batch, beyond which the batches come from elsewhere."""
_WRAP = "`for batch in bottleneck.watch({}):`"
_NO_LOADER = (
    f"Wrap what the loop takes its batches from: {_WRAP.format('batches')}. If a function makes each batch, wrap the "
    "function: `bottleneck.watch(get_batch)`."
)
_NO_OPTIMIZER = f"Where the loop only evaluates, or trains in another way, wrap its loader: {_WRAP.format('loader')}."
_BY_ITSELF = "It would end so by itself, too: mend that first."
_TENSORFLOW = (
    f"It uses TensorFlow. If the loop is your own, wrap its dataset: {_WRAP.format('dataset')}. Keras' fit cannot be "
    "watched; use TensorBoard's profiler for it."
)


def not_found(watch: Watch, *, status: int = 0, starts_processes: bool = False) -> MeasurementError:
    """Return why no loop was found.

    Args:
        status: What the script has ended with.
        starts_processes: It has started processes, in which it may train.
    """
    seen = f"Seen: {_seen(watch)}."
    ended = f" before it ended with exit status {status}" if status else ""
    trains = bool(watch.optimizer_steps or watch.backward.count)
    # Where it trains in this process, those that it has started make its batches.
    if not watch.sources and starts_processes and not trains:
        return MeasurementError(
            "The script made no pass over a DataLoader of PyTorch's in its first process, and those that it has "
            f"started are not watched. {seen}",
            f"If it trains there, let it train in the first one, by an option of its own. {_NO_LOADER}",
        )
    if not watch.sources:
        remedy = _TENSORFLOW if "tensorflow" in sys.modules else _NO_LOADER
        return MeasurementError(
            f"The script made no pass over a DataLoader of PyTorch's{ended}. {seen}", _BY_ITSELF if status else remedy
        )
    if not (trains or watch.has_wrapped):
        return MeasurementError(
            f"No optimizer of PyTorch's made a step, and there was no backward pass. {seen}", _NO_OPTIMIZER
        )
    # A validation before the first epoch is followed by a step, once.
    if watch.optimizer_steps > _FEW_TIMES * _steps(watch) or not _steps(watch):
        return MeasurementError(
            f"Hardly any batch of a DataLoader was followed by a step of the training. {seen}", _NO_LOADER
        )
    return MeasurementError(
        f"There were not enough steps of the training between the batches of one loader. {seen}",
        "Let it train for longer, or give a smaller --skip-steps (in Python: skip_steps).",
    )


def _steps(watch: Watch) -> int:
    return sum(source.steps for source in watch.sources)


def _seen(watch: Watch) -> str:
    loaders = ", ".join(_named(watch.sources)) or "no DataLoader"
    return (
        f"{loaders}; {_count(watch.optimizer_steps, 'optimizer step')}, "
        f"{_count(watch.backward.count, 'backward pass', 'backward passes')}"
    )


def _named(sources: Sequence[Source]) -> list[str]:
    shown = [f"{type(one.loader.dataset).__name__} ({_count(one.batches, 'batch', 'batches')})" for one in sources]
    more = [f"{len(shown) - _MOST_NAMES} more loaders"] if len(shown) > _MOST_NAMES else []
    return shown[:_MOST_NAMES] + more


def _count(number: int, one: str, several: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else several or f'{one}s'}"


class Notice:
    """Says by the clock, once, that a script which goes on has given nothing to measure: it may go on for days.

    Args:
        watch: Of the script.
        why: Gives what is missing.
        tell: Gets the sentence, in another thread.
    """

    def __init__(self, watch: Watch, why: Callable[[], BaseException], tell: Callable[[str], None]) -> None:
        self._watch, self._why, self._tell = watch, why, tell
        self._steps = self._looks = 0
        self._over = threading.Event()

    def __enter__(self) -> Notice:
        threading.Thread(target=self._wait, name="bottleneck-notice", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def _wait(self) -> None:
        while not self._over.wait(_PATIENCE_S) and self.look():
            pass

    def look(self) -> bool:
        """Tell, unless a loop was found, or has come nearer to that since the last look: then it is to be looked again.

        Returns:
            Whether it is.
        """
        self._looks += 1
        before, self._steps = self._steps, _steps(self._watch)
        if not self._watch.is_feeding and self._steps == before:
            # On a line of its own, where the script draws a bar of progress.
            self._tell(
                f"\nNothing to measure so far, after {self._looks * _PATIENCE_S:.0f} s. The script goes on, and is "
                f"measured as soon as it trains. If it trains already: {self._why()}"
            )
        return not self._watch.is_feeding and self._steps > before
