"""What gives batches to a loop."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch.utils.data import DataLoader

from bottleneck.loader.clone import keeps_workers
from bottleneck.script.moves import Moves

if TYPE_CHECKING:
    from bottleneck.script.watch import WatchedIterator


@dataclass(eq=False)
class Source:
    """What gives batches to a loop: a dataset, by whatever loaders, as some are made anew for each epoch."""

    loader: DataLoader[Any]
    """The last one with a batch that an optimizer's step followed; before that, the first one."""
    given_by: WatchedIterator | None = None
    """What gave the last batch since the last step of the optimizer."""
    per_step: list[int] = field(default_factory=list)
    """Of each step of the optimizer before which it gave any: how many batches."""
    is_wrapped: bool = False
    """By `bottleneck.watch`: what the loop does with each batch is a step, whether or not an optimizer is in it."""
    batches: int = 0
    """How many it gave before the diagnosis feeds the loop, to whatever asked."""
    waited_s: float = 0.0
    """How long the loop waited for its batches."""
    passes: int = 0
    """How many passes over it gave batches for training, until the diagnosis feeds the loop."""
    steps_beside: int = 0
    """Steps after one of its batches since the diagnosis feeds the loop, be it from this source or from another."""
    moves: Moves = field(default_factory=Moves)
    """What the loop does with the parts of its batches."""
    ended: Any = None
    """PyTorch's iterator that gave the last of its real batches, once its workers have ended: a loader that asks its
    iterator for a state gets that one's."""

    @property
    def steps(self) -> int:
        """Steps of the optimizer before each of which it gave a batch."""
        return len(self.per_step)

    @property
    def starts_workers_for_each_batch(self) -> bool:
        """Whether the loop takes a single batch of each pass, as with `next(iter(loader))`."""
        anew = self.loader.num_workers > 0 and not keeps_workers(self.loader)
        return anew and self.passes >= sum(self.per_step)


def alike(one: DataLoader[Any], other: DataLoader[Any]) -> bool:
    """Whether two loaders of a dataset can be those of two epochs."""
    return one is other or all(
        function(one) == function(other)
        for function in (type, lambda it: it.batch_size, lambda it: it.num_workers, lambda it: type(it.sampler))
    )
