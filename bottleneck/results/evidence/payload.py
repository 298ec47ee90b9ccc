"""What a batch holds."""

from __future__ import annotations

from dataclasses import dataclass

from bottleneck.results.values import Count, Quantity


@dataclass(frozen=True, kw_only=True)
class TensorSeen:
    """A tensor of a batch."""

    path: str | None = None
    """Where in the batch, such as `[0]`; empty for the batch itself."""
    shape: tuple[Count, ...] = ()
    dtype: str | None = None
    bytes: Quantity | None = None


@dataclass(frozen=True, kw_only=True)
class Saving:
    """A smaller form in which a tensor could travel."""

    id: str | None = None
    path: str | None = None
    what: str | None = None
    how: str | None = None
    bytes_saved: Quantity | None = None


@dataclass(frozen=True, kw_only=True)
class Payload:
    """What one batch holds."""

    bytes: Quantity | None = None
    tensor_count: Quantity | None = None
    tensors: tuple[TensorSeen, ...] = ()
    """The first of them."""
    objects: Quantity | None = None
    savings: tuple[Saving, ...] = ()
    """The largest first."""
    unread: tuple[str, ...] | None = None
    """Paths of the tensors that the train step never reads; None where that is unknown."""
    unread_bytes: Quantity | None = None
