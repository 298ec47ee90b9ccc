"""A batch: its tensors, their bytes, and what need not travel."""

from __future__ import annotations

from collections.abc import Iterator

from bottleneck.reports.document import Column, Paragraph, Section, Table
from bottleneck.results.evidence import Saving, TensorSeen
from bottleneck.results.format import UNKNOWN, bare, plural, size, whole
from bottleneck.results.names import moves_batches
from bottleneck.results.records import Result

_COLUMNS = (
    Column("tensor", "path"),
    Column("shape", "number"),
    Column("type"),
    Column("bytes", "number"),
    Column("what could be saved"),
)


def payload(result: Result) -> Iterator[Section]:
    """The tensors of one batch, in its order."""
    savings = {_place(found): found for found in result.evidence.payload.savings}
    rows = tuple(
        (_place(found), _shape(found), found.dtype or UNKNOWN, size(found.bytes), _saving(savings.get(_place(found))))
        for found in result.evidence.payload.tensors
    )
    if rows:
        yield Section("What one batch holds", (Table(_COLUMNS, rows), Paragraph(summary(result), "note")))


def moved_bytes(result: Result) -> Iterator[Section]:
    """The summary, and the largest tensor, where moving batches holds the job."""
    named = (result.verdict.bottleneck, *result.verdict.contributors)
    text = summary(result) if any(name and moves_batches(name) for name in named) else ""
    largest = max(result.evidence.payload.tensors, key=lambda found: found.bytes or 0, default=None)
    if text and largest is not None:
        text += f" The largest is {_place(largest)}: {_shape(largest)} {largest.dtype or ''}".rstrip() + "."
    yield Section("", (Paragraph(text, "small"),))


def summary(result: Result) -> str:
    """What one batch holds, as one sentence or two; empty where none was looked at."""
    held = result.evidence.payload
    if held.bytes is None:
        return ""
    what = plural(len(held.tensors), "tensor")
    if held.objects:
        what += f" and {whole(held.objects)} object{'' if held.objects == 1 else 's'} that are none"
    listed = sum(found.bytes or 0 for found in held.tensors)
    more = "more than " if listed < held.bytes else ""  # of very many, only the first are kept
    text = f"One batch holds {more}{what}, {size(held.bytes)}."
    bytes_saved = sum(saving.bytes_saved or 0 for saving in held.savings)
    if 0 < bytes_saved <= held.bytes:
        text += f" Of these, {size(bytes_saved)} need not travel."
    return text


def _place(found: TensorSeen | Saving) -> str:
    return f"batch{found.path or ''}"


def _shape(found: TensorSeen) -> str:
    return "x".join(map(bare, found.shape)) or "scalar"


def _saving(found: Saving | None) -> str:
    if found is None:
        return ""
    return f"{found.what or '?'}; saves {size(found.bytes_saved)}: {found.how or '?'}"
