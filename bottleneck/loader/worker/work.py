"""The kinds of work that a mode can ask a worker for; each has one object that does it."""

from __future__ import annotations

from typing import Any


class Placeholder:
    """In the place of samples that are not made.

    Attributes:
        size: Samples in the batch that is served in their place; 0 where there is none.
    """

    def __init__(self, size: int) -> None:
        self.size = size


SKIPPED = Placeholder(0)


def is_placeholder(samples: Any) -> bool:
    """Whether samples were not made; a list that spans a switch of the mode counts as not made."""
    if isinstance(samples, list) and samples:
        return isinstance(samples[0], Placeholder) or isinstance(samples[-1], Placeholder)
    return isinstance(samples, Placeholder)


class Work:
    """What a worker does for the batches of a mode; this base does nothing.

    The samples of a map-style dataset are fetched by request, those of a stream one after the other. What the user's
    code raises becomes a `UserCodeError`.
    """

    def fetch(self, _: Any) -> Any:
        return SKIPPED

    def next_items(self) -> list[Any]:
        """Return the next items of a stream, one or more; `NoShareError` if this worker has no share of it."""
        return [SKIPPED]

    def collate(self, _: Any) -> Any:
        return None

    def drop(self) -> None:
        """Forget the batch that is being made: it will be thrown away."""
