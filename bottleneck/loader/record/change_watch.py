"""Notice when recorded data changes: it is served thousands of times, and each serving has to find it as it was.

An augmentation that works in place now and then, or a `pop` in a target, slips through a check of two items. The
versions of tensors are looked at whenever the mode changes; everything else has a checksum, which is compared as
often as that takes a fiftieth of the time. Neither happens in a timed block.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image

from bottleneck.job import containers
from bottleneck.job.marks import is_mark
from bottleneck.loader import modes, trees
from bottleneck.loader.record.lazy import is_lazy_image, is_shared_map
from bottleneck.loader.record.plan import Plan
from bottleneck.loader.record.store import RecordedBatch, RecordedItem, RecordingStore
from bottleneck.loader.record.tape import Call, Tape

What = Literal["arguments", "outputs", "locals", "sample", "batch"]
_Holder = RecordedItem | RecordedBatch
_INNERMOST: tuple[What, ...] = ("arguments", "locals", "outputs", "sample", "batch")
_MOST_OF_THE_TIME = 0.02
_MANY = 16
_MOST_BYTES = 1 << 26
"""Recorded data of a worker beyond which there are no more checksums: what changes some items changes those, too."""


@dataclass(frozen=True)
class Change:
    """Recorded data that was served as it is, and is no longer what was recorded.

    Attributes:
        what: Which data.
        site: Whose arguments or outputs; empty for local variables, samples and batches.
        modes: What was served since it was last found to be as recorded.
    """

    what: What
    site: str
    modes: tuple[int, ...]


class Snapshot:
    """Remembers what some data holds, without a copy of it."""

    def __init__(self, value: Any, *, with_digests: bool = True) -> None:
        nodes = list(_nodes(value))
        self._versions = [(node, _version(node)) for node in nodes if isinstance(node, torch.Tensor)]
        self._digests = [(node, _digest(node)) for node in nodes] if with_digests else []

    def moved(self) -> bool:
        """Whether an operation in place was made on a tensor; takes a fraction of a microsecond for each."""
        return any(_version(tensor) != version for tensor, version in self._versions)

    def changed(self) -> bool:
        return self.moved() or any(not _same(_digest(node), digest) for node, digest in self._digests)


def _version(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _nodes(value: Any) -> Iterator[Any]:
    """Yield everything in a tree that can change, the attributes of objects included."""
    seen: set[int] = set()
    stack = [value]
    while stack:
        node = stack.pop()
        if trees.is_primitive(node) or isinstance(node, type) or callable(node) or id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        parts = _parts(node)
        stack.extend(part for _, part in parts or ())


def _parts(node: Any) -> list[tuple[Any, Any]] | None:
    if isinstance(node, (torch.Tensor, np.ndarray, Image.Image)):
        return None
    found = containers.children(node)
    if found is None and isinstance(getattr(node, "__dict__", None), dict):
        found = list(vars(node).items())
    return found


def _digest(node: Any) -> Any:
    """Return what shows whether a node has changed; what is inside it has a digest of its own."""
    try:
        if isinstance(node, torch.Tensor):
            whole = node.layout == torch.strided and node.device.type == "cpu" and node.numel()
            return zlib.crc32(node.detach().contiguous().view(-1).view(torch.uint8).numpy().data) if whole else None
        if is_lazy_image(node) or is_shared_map(node):
            return "not read"
        if isinstance(node, np.ndarray):
            return None if node.dtype.hasobject else zlib.crc32(np.ascontiguousarray(node).data.cast("B"))
        if isinstance(node, Image.Image):
            return zlib.crc32(node.tobytes())
        if isinstance(node, bytearray):
            return zlib.crc32(node)
        parts = _parts(node)
        if parts is not None and len(parts) > _MANY and all(trees.is_primitive(part) for _, part in parts):
            return hash(tuple(parts))  # in the place of a list that takes more memory than the data
    except Exception:  # noqa: BLE001 - of an exotic type it cannot be known
        return None
    return parts


def _same(a: Any, b: Any) -> bool:
    if not isinstance(a, list) or not isinstance(b, list):
        return bool(a == b) or a is None or b is None
    return len(a) == len(b) and all(
        key == other_key and (part is other or (trees.is_primitive(part) and trees.equal(part, other)))
        for (key, part), (other_key, other) in zip(a, b, strict=True)
    )


class ChangeWatch:
    """Watches what one worker serves without copying it."""

    def __init__(self, store: RecordingStore, tape: Tape, clock: Callable[[], float] = time.perf_counter) -> None:
        self._store, self._tape, self._clock = store, tape, clock
        self._watched: list[tuple[_Holder, What, str, Snapshot]] = []
        self._modes: set[int] = set()
        """What was served since everything was compared."""
        self._copies_batches = True
        self._due_s = 0.0

    def begin(self, plan: Plan) -> None:
        """Remember what is recorded now, as far as a plan serves it without copying it."""
        started_s = self._clock()
        self._watched.clear()
        self._copies_batches = plan.copy_batches
        taken = 0
        for batch in self._store.batches:
            for holder, what, site, value in _served(batch, plan, self._tape):
                self._watched.append((holder, what, site, Snapshot(value, with_digests=taken <= _MOST_BYTES)))
            taken += sum(item.nbytes for item in batch.items)
            taken += batch.collated.nbytes if batch.collated is not None and not plan.copy_batches else 0
        self._modes.clear()
        self._note_cost(started_s)

    def _note_cost(self, started_s: float) -> None:
        now_s = self._clock()
        self._due_s = now_s + (now_s - started_s) / _MOST_OF_THE_TIME

    def look(self, left: int, *, whole: bool) -> list[Change]:
        """Return what has changed since it was recorded, and keep what has not; to be asked when a mode is left.

        Args:
            left: The mode that was served up to now.
            whole: Compare the checksums in any case.
        """
        works = left & modes.ALL_AND_MARKS & ~modes.HANDOFF
        serves = works != modes.ALL & ~modes.HANDOFF and (
            works & (modes.WITHIN_SAMPLE | modes.COLLATE) or not self._copies_batches
        )
        if serves:
            self._modes.add(left)
        started_s = self._clock()
        whole = (whole or started_s >= self._due_s) and bool(self._modes)
        if not (serves or whole):
            return []
        found = [(holder, what, site) for holder, what, site, was in self._watched if was.moved()]
        modes_served = {left}
        if not found and whole:
            found = [(holder, what, site) for holder, what, site, was in self._watched if was.changed()]
            modes_served = set(self._modes)
            self._modes.clear()
            self._note_cost(started_s)
        if not found:
            return []
        self._drop({id(holder) for holder, _, _ in found})
        # One object may be the argument of one call, the output of another and in the sample: the innermost is served.
        first = next(kind for kind in _INNERMOST if any(what == kind for _, what, _ in found))
        sites = dict.fromkeys(site for _, what, site in found if what == first)
        return [Change(first, site, tuple(sorted(modes_served))) for site in sites]

    def _drop(self, changed: set[int]) -> None:
        """Serve only what is as it was recorded, if there is any."""
        kept = [
            (batch, [item for item in batch.items if id(item) not in changed])
            for batch in self._store.batches
            if id(batch) not in changed
        ]
        kept = [(batch, items) for batch, items in kept if items]
        if not kept:
            return
        for batch, items in kept:
            batch.items = items
        self._store.batches = [batch for batch, _ in kept]
        self._watched = [watched for watched in self._watched if id(watched[0]) not in changed]


def _served(batch: RecordedBatch, plan: Plan, tape: Tape) -> Iterator[tuple[_Holder, What, str, Any]]:
    """Yield what of a batch is served as it is: where it belongs, what it is, whose it is, and the data itself."""
    for item in batch.items:
        if not plan.copy_samples:
            yield item, "sample", "", item.value
        if not plan.copy_locals and item.locals is not None and tape.tail is not None:
            yield item, "locals", "", tape.tail.copies(item.locals)
        for what, call, value in _served_of_calls(item.calls, plan, tape):
            yield item, what, call.site, value
    for what, call, value in _served_of_calls(batch.calls, plan, tape):
        yield batch, what, call.site, value
    if not plan.copy_batches and batch.collated is not None:
        yield batch, "batch", "", batch.collated.value


def _served_of_calls(calls: list[Call], plan: Plan, tape: Tape) -> Iterator[tuple[What, Call, Any]]:
    for call in calls:
        marked = is_mark(call.site)
        if call.site not in plan.copy_outputs:
            yield "outputs", call, call.output
        runs = marked or (plan.strategy != "replay" and tape.stage(call.site) == "augment")
        if call.site not in plan.copy_arguments and runs:
            given = [*call.args, *call.kwargs.values()]
            yield "arguments", call, [value for value in given if not marked or trees.is_data(value)]
