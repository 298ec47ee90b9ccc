"""What the workers are asked for, and when: what will be thrown away after a switch need not be made.

Each request carries the generation in which it was sent. An iterable dataset never sees its requests, so a worker
also notes the generation of the one that it took from its queue last.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

arrived_generation: int | None = None
"""The generation of the request that this worker took last; None in a process that receives none."""


class Request(list[Any]):
    """The indices of a batch; for a stream, a placeholder for each sample."""

    def __init__(self, indices: Any, generation: int) -> None:
        super().__init__(indices)
        self.generation = generation

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrive, (Request, list(self), self.generation)


class _Stamped:
    """Carries something to a worker, with the generation in which it was sent."""

    def __init__(self, content: Any, generation: int) -> None:
        self.content, self.generation = content, generation

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrive, (type(self), self.content, self.generation)


class Single(_Stamped):
    """What a loader that does not batch asks for at once: an index, or whatever its sampler gives."""


class Blank(_Stamped):
    """Stands for the indices of a batch that needs none; its content is how many there would be."""

    def __len__(self) -> int:
        return int(self.content)


def _arrive(kind: Callable[[Any, int], Any], content: Any, generation: int) -> Any:
    """Unpickle a request; a worker does so right before it makes the batch."""
    global arrived_generation  # noqa: PLW0603 - there is one queue of requests in a process
    arrived_generation = generation
    return kind(content, generation)
