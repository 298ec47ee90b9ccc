"""What a diagnosis checks and restores of the training that it does; none of it inside a block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from bottleneck.job.pipeline import Pipeline
from bottleneck.measure.ladder import Arm, Ladder
from bottleneck.measure.rounds.new_shapes import NewShapes, make_counts
from bottleneck.measure.training.losses import Losses
from bottleneck.measure.training.training_state import TrainingState
from bottleneck.results.evidence import TrainingSeen


@dataclass
class Training:
    """Checks the training between blocks."""

    state: TrainingState | None = None
    """Restored at the beginning of each round; None: training goes on."""
    losses: Losses = field(default_factory=Losses)
    shapes: NewShapes = field(default_factory=NewShapes)

    def watch(self, step: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return a train step whose losses and shapes are kept."""
        looks, meet, keep = self.shapes.looks, self.shapes.meet, self.losses.keep

        def watched(batch: Any) -> Any:
            if looks:
                meet(batch)
            returned = step(batch)
            keep(returned)
            return returned

        return watched

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        """Release the copies of the state: the rounds are over."""
        if self.state is not None:
            self.state.release()

    @property
    def _scalers(self) -> tuple[Any, ...]:
        return self.state.scalers if self.state is not None else ()

    def begin_round(self) -> None:
        """Restore the state of training."""
        if self.state is not None:
            self.state.begin_round()

    def begin_block(self) -> None:
        """Read what is compared at the end of a block."""
        self.losses.begin_block(self._scalers)
        self.shapes.begin_block()

    def end_block(self, arm: Arm, round_: int) -> None:
        """Compare; the block is over, and the device idle."""
        self.losses.end_block(self._scalers, arm, round_)
        self.shapes.end_block(arm)

    def device_bytes(self, device: torch.device) -> int:
        """Return what copies of the state take on a device, or took until they were released."""
        return self.state.device_bytes.get(device, 0) if self.state is not None else 0

    # --- results -------------------------------------------------------------------------------------------

    def evidence(self) -> TrainingSeen:
        """Return the evidence on the training."""
        found, state = self.shapes.evidence(), self.state
        return found if state is None else replace(found, put_back=state.times, put_back_skipped=state.skipped)

    def warnings(self, ladder: Ladder) -> Iterator[tuple[str, str]]:
        """Yield id and message of each reason not to trust a number."""
        yield from self.losses.warnings(ladder)
        for warning in (self.shapes.warning(), self.state.warning() if self.state is not None else None):
            if warning is not None:
                yield warning


def make_training(
    pipeline: Pipeline,
    step: Callable[[Any], Any],
    device: torch.device,
    synchronize: Callable[[], None],
    clock: Callable[[], float],
) -> Training:
    """Return what checks and restores the training of a job with some train step, whose batches are on a device."""
    roots = {"the model": pipeline.model, "the optimizer": pipeline.optimizer, "the train step": step}
    shapes = NewShapes(
        make_counts(device),
        looks=device.type != "cpu",
        tries_algorithms=device.type == "cuda" and bool(torch.backends.cudnn.benchmark),
    )
    return Training(TrainingState(roots, synchronize, clock), shapes=shapes)
