"""What every format shows of a batch: its tensors, their bytes, and what need not travel."""

from __future__ import annotations

from dataclasses import dataclass

from bottleneck.reports import numbers, sanitize
from bottleneck.results.evidence import Saving, TensorSeen
from bottleneck.results.names import moves_batches
from bottleneck.results.records import Result


@dataclass(frozen=True)
class TensorRow:
    """A tensor of a batch; text of the user's is not yet cleaned or escaped."""

    place: str
    """Where in the batch, such as `batch[0]`."""
    shape: str
    dtype: str
    size: str
    saving: str
    """What could be saved, and how; empty where nothing."""


def tensors(result: Result) -> tuple[TensorRow, ...]:
    """The tensors of one batch, in its order; none where none was looked at."""
    savings = {_place(found): found for found in result.evidence.payload.savings}
    return tuple(
        TensorRow(
            place=_place(found),
            shape=_shape(found),
            dtype=found.dtype or numbers.UNKNOWN,
            size=numbers.size(found.bytes),
            saving=_saving(savings.get(_place(found))),
        )
        for found in result.evidence.payload.tensors
    )


def summary(result: Result) -> str:
    """What one batch holds, as one sentence or two; empty where none was looked at."""
    total = result.evidence.payload.bytes
    if total is None:
        return ""
    rows = result.evidence.payload.tensors
    objects = result.evidence.payload.objects
    what = f"{len(rows):,} tensor{'' if len(rows) == 1 else 's'}"
    if objects:
        what += f" and {numbers.count(objects)} object{'' if objects == 1 else 's'} that are none"
    listed = sum(found.bytes or 0 for found in rows)
    more = "more than " if listed < total else ""  # of very many, only the first are kept
    told = f"One batch holds {more}{what}, {numbers.size(total)}."
    bytes_saved = sum(saving.bytes_saved or 0 for saving in result.evidence.payload.savings)
    if 0 < bytes_saved <= total:
        told += f" Of these, {numbers.size(bytes_saved)} need not travel."
    return told


def summary_where_it_matters(result: Result) -> str:
    """The summary, and the largest tensor, where moving batches holds the job; else empty."""
    named = (result.verdict.bottleneck, *result.verdict.contributors)
    told = summary(result) if any(name and moves_batches(name) for name in named) else ""
    rows = result.evidence.payload.tensors
    largest = max(rows, key=lambda found: found.bytes or 0, default=None)
    if not told or largest is None:
        return told
    dtype = largest.dtype or ""
    return f"{told} The largest is {sanitize.one_line(f'{_place(largest)}: {_shape(largest)} {dtype}')}."


def _place(found: TensorSeen | Saving) -> str:
    return f"batch{found.path or ''}"


def _shape(found: TensorSeen) -> str:
    return "x".join(map(numbers.bare, found.shape)) or "scalar"


def _saving(found: Saving | None) -> str:
    if found is None:
        return ""
    return f"{found.what or '?'}; saves {numbers.size(found.bytes_saved)}: {found.how or '?'}"
