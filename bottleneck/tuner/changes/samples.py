"""Changes to how samples are made: kept in memory, cropped before work on every pixel, or made of tensors of bytes.

Each is compared with the original samples before it is timed; datasets that keep state, or whose samples are random
before the transform, are refused.
"""

from __future__ import annotations

import copy
import inspect
import pickle
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import IterableDataset

from bottleneck.analysis.advice.samples import PIXELWISE, SMALLER
from bottleneck.loader import trees
from bottleneck.loader.calls import RngState
from bottleneck.loader.user_code import fetches_batches
from bottleneck.measure.machine.environment import rank_memory_bytes
from bottleneck.results.format import size
from bottleneck.tuner.change import Change, Context
from bottleneck.tuner.changes.data import (
    Around,
    copied,
    epoch_of,
    inside_subsets,
    is_torchvisions,
    seeded,
    spread_over,
    with_transform,
)
from bottleneck.tuner.changes.step import NOT_THE_LOADERS, STREAM

_SEEDS = (1, 2)
_DRAWS = 8
"""Number of draws of each transform with which two orders of transforms are compared."""
_WHOLE = "samples"
"""Keep whole samples."""
_INPUTS = "inputs"
"""Keep the inputs of the transform."""
_MEMORY_SHARE = 0.5
"""Maximum share of the free memory for all samples."""
_MAX_KEPT = 1024
"""Maximum number of samples kept for a trial, which shows the gain of keeping all."""
_MAX_BYTES = 128 << 20
_MAX_S = 3.0
_ROUNDING = 0.01
"""Share of a sample's range of values by which another order of transforms may differ, because pixels are rounded."""
_NEAR = 0.02
"""The same for the mean of pixels of version 2 transforms: colours differ by one or two levels of 256."""

# --- non-random parts, kept in memory -----------------------------------------------------------------------


class _Hole:
    """Placeholder in a sample for the transform's output; can be pickled for workers of any start method."""


class _Recorder:
    """The user's transform; records its inputs, its outputs, and the random generators before and after."""

    def __init__(self, transform: Callable[[Any], Any]) -> None:
        self.transform, self.calls, self.states = transform, list[tuple[Any, Any]](), list[RngState]()

    def __call__(self, given: Any) -> Any:
        kept = _in_memory(given)  # before a transform works in place
        self.states.append(RngState.capture())
        self.calls.append((kept, self.transform(given)))
        self.states.append(RngState.capture())
        return self.calls[-1][1]


def _in_memory(value: Any) -> Any:
    """Copy a tree into memory, including values that are decoded or read on first use."""

    def copied(leaf: Any) -> Any:
        return leaf.copy() if trees.is_lazy_image(leaf) or trees.is_mapped(leaf) else trees.copy_leaf(leaf)

    return trees.map_leaves(copied, value)


class InMemory(Around):
    """A dataset whose samples are in memory, up to the transform, which is still called each time.

    Forked workers share samples that were kept before they start. A trial keeps some samples, which represent all: each
    index gets a copy of one of them, as a script makes it: to load a graph from a pickle takes longer than some
    transforms.

    Args:
        dataset: The user's dataset.
        whole: True if the transform is not random either, so that whole samples are kept.
    """

    def __init__(self, dataset: Any, *, whole: bool) -> None:
        super().__init__(dataset)
        self.whole, self.kept = whole, list[Any]()
        self.draws = False
        """True if random numbers were drawn for a sample before or after its transform."""

    def prepare(self) -> None:
        """Keep samples from all over the dataset, before workers start; the random generators are restored."""
        began_s, nbytes, count = time.perf_counter(), 0, min(_MAX_KEPT, len(self.dataset))
        maker = InMemory(copied(self.dataset), whole=self.whole)
        for at in range(count):
            self.kept.append(seeded(at, maker.make, at * len(self.dataset) // count))
            nbytes += trees.nbytes(self.kept[-1])
            if nbytes > _MAX_BYTES or time.perf_counter() - began_s > _MAX_S:
                return

    def make(self, index: int) -> Any:
        """Return the part of a sample that is kept.

        Raises:
            ValueError: The transform is not called once, or its output is not part of the sample.
        """
        if self.whole:
            return _in_memory(self.dataset[index])
        recorder = _Recorder(inside_subsets(self.dataset).transform)
        begun = RngState.capture()
        sample = with_transform(self.dataset, lambda _: recorder)[index]
        around = [begun, *recorder.states, RngState.capture()]
        self.draws |= not all(one.is_same(other) for one, other in zip(around[::2], around[1::2], strict=True))
        [(given, made)] = recorder.calls
        [_] = [leaf for leaf in trees.leaves(sample) if leaf is made]
        return given, _in_memory(trees.map_leaves(lambda leaf: _Hole if leaf is made else leaf, sample))

    def serve(self, kept: Any) -> Any:
        """Return a sample from its kept part, by a call of the transform."""
        if self.whole:
            return trees.copy_deep(kept)
        given, rest = trees.copy_deep(kept)
        made = inside_subsets(self.dataset).transform(given)
        return trees.map_leaves(lambda leaf: made if leaf is _Hole else leaf, rest)

    def __getitem__(self, index: int) -> Any:
        if not self.kept:
            self.prepare()
        return self.serve(self.kept[index % len(self.kept)])

    def __getstate__(self) -> dict[str, Any]:
        # Sent to a worker one by one, each tensor would take a file descriptor.
        return {**vars(self), "kept": pickle.dumps(self.kept, pickle.HIGHEST_PROTOCOL)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, kept=pickle.loads(state["kept"]))


def prepare(dataset: Any) -> None:
    """Let a dataset that keeps samples in memory load them, before workers start."""
    if isinstance(dataset, InMemory):
        dataset.prepare()


def _why_not_in_memory(here: Context) -> str | None:
    dataset = here.pipeline.dataset
    if isinstance(dataset, IterableDataset):
        return STREAM
    if isinstance(dataset, InMemory):
        return "the samples are in memory already"
    if here.loader.batch_size is None:
        return NOT_THE_LOADERS
    if not hasattr(dataset, "__len__") or len(dataset) == 0 or fetches_batches(dataset):
        return "the dataset gives whole batches, or has no length"
    if name := epoch_of(dataset):
        return f"the dataset has `{name}`: its samples may differ from epoch to epoch"
    try:
        found = _kept_of(copied(dataset))
    except Exception:  # noqa: BLE001 - the user's dataset may not allow this
        return "the dataset has no `transform` that it calls once per sample, and whose output is part of the sample"
    if isinstance(found, str):
        return found
    needed, free = found * len(dataset), rank_memory_bytes()
    if needed > _MEMORY_SHARE * free:
        return f"all of its samples would take about {size(needed)}, but {size(free)} are free"
    return None


def _kept_of(dataset: Any) -> float | str:
    """Return the mean bytes to keep per sample; or the reason why none can be kept."""
    seeded(0, dataset.__getitem__, 0)  # files opened at the first sample are not state
    before, indices = state_of(dataset), spread_over(dataset)
    memory = InMemory(dataset, whole=is_fixed(dataset))
    kept = [[seeded(seed, memory.make, index) for seed in _SEEDS] for index in indices]
    if state_of(dataset) != before:
        return "the dataset keeps state: a sample changes what it holds"
    if not all(trees.equal(*pair) for pair in kept):
        return "a sample is random before the transform, or mixes others at random"
    for index, (one, _) in zip(indices, kept, strict=True):
        if memory.draws or not trees.equal(seeded(1, dataset.__getitem__, index), seeded(1, memory.serve, one)):
            return "a sample from memory would not be the same: random numbers are drawn outside of the transform"
    return sum(trees.nbytes(one) for one, _ in kept) / len(kept)


def is_fixed(dataset: Any) -> bool:
    """Return True if samples are made without random numbers, even ones that have no effect."""
    begun = seeded(_SEEDS[0], lambda _: RngState.capture(), None)
    return all(
        seeded(_SEEDS[0], lambda index: (dataset[index], begun.is_same(RngState.capture())), index)[1]
        and trees.equal(*(seeded(seed, dataset.__getitem__, index) for seed in _SEEDS))
        for index in spread_over(dataset)
    )


def state_of(dataset: Any) -> dict[str, Any]:
    """Return identities and lengths that show changes of a dataset: other objects, other numbers, more entries."""
    held = getattr(inside_subsets(dataset), "__dict__", {}).items()
    return {name: (id(value), len(value) if isinstance(value, dict | list | set) else 0) for name, value in held}


# --- the crop before work on every pixel ---------------------------------------------------------------------


@dataclass(frozen=True)
class Moved:
    """A transform of a composition, moved in front of others."""

    begin: int
    end: int
    names: tuple[str, ...]
    """Names from `begin` to `end`, in their new order."""

    def __str__(self) -> str:
        return ", ".join(f"{name}(...)" for name in self.names)

    @property
    def label(self) -> str:
        """Name of the transform that is moved."""
        return self.names[0]

    def order(self, steps: Sequence[Any]) -> list[Any]:
        """Return the transforms in their new order."""
        return [*steps[: self.begin], steps[self.end], *steps[self.begin : self.end], *steps[self.end + 1 :]]


def steps_of(dataset: Any) -> list[Any]:
    """Return the transforms of a dataset's composition; nothing if it has none."""
    steps = getattr(getattr(inside_subsets(dataset), "transform", None), "transforms", None)
    return list(steps) if isinstance(steps, list | tuple) else []


def _moves(steps: Sequence[Any]) -> list[Moved]:
    """Return the first crop or resize after a pixelwise transform, moved in front of it."""
    names = [type(step).__name__ for step in steps]
    for end, name in enumerate(names):
        early = [at for at in range(end) if PIXELWISE.search(names[at]) and not SMALLER.search(names[at])]
        if SMALLER.search(name) and early:
            begin = early[0]
            return [Moved(begin, end, (name, *names[begin:end]))]
    return []


def _why_not_crop_first(here: Context) -> str | None:
    dataset = here.pipeline.dataset
    if isinstance(dataset, IterableDataset):
        return STREAM
    steps = steps_of(dataset)
    if not steps:
        return "the dataset has no `transform` that is a composition, with a list of `transforms`"
    moves = _moves(steps)
    if not moves:
        return "no transform works on pixels that a later crop or resize throws away"
    both = (_seeding_each(order, steps) for order in (steps, moves[0].order(steps)))
    return None if _is_same(copied(dataset), *both) else f"{moves[0]} would not give the same samples"


def _seeding_each(order: Sequence[Any], steps: Sequence[Any]) -> Callable[[Any], Any]:
    """Return transforms each of which draws the same random numbers in any order."""

    def run(sample: Any) -> Any:
        seed = int(torch.randint(1 << 31, ()))
        for step in order:
            sample = seeded(seed + steps.index(step), step, sample)
        return sample

    return run


def _is_same(dataset: Any, one: Callable[[Any], Any], other: Callable[[Any], Any], **within: Any) -> bool:
    """Return True if two transforms make the same of a sample's inputs, with the same random numbers."""
    while isinstance(dataset, InMemory):
        dataset = dataset.dataset
    recorded = with_transform(dataset, _Recorder)
    try:
        for index in spread_over(dataset):
            seeded(index, recorded.__getitem__, index)
            given = inside_subsets(recorded).transform.calls[-1][0]
            for seed in range(_DRAWS * index, _DRAWS * (index + 1)):  # a transform may have no effect by chance
                if not _is_close(*(seeded(seed, run, trees.copy_deep(given)) for run in (one, other)), **within):
                    return False
    except Exception:  # noqa: BLE001 - the user's transforms may not expect such inputs
        return False
    return True


def _is_close(one: Any, other: Any, of: Callable[..., Any] = torch.max, share: float = _ROUNDING) -> bool:
    if not (isinstance(one, torch.Tensor) and type(one) is type(other) and one.shape == other.shape):
        return False
    apart = (one.double() - other.double()).abs()
    return one.dtype is other.dtype and float(of(apart)) <= share * float(one.max() - one.min())


def with_steps(dataset: Any, change: Callable[[list[Any]], list[Any]]) -> Any:
    """Return a copy of a dataset whose composition has other transforms, made from the present ones."""

    def changed(transform: Any) -> Any:
        transform = copy.copy(transform)
        transform.transforms = type(transform.transforms)(change(list(transform.transforms)))
        return transform

    return with_transform(dataset, changed)


# --- tensors of bytes instead of Pillow's images --------------------------------------------------------------


def _on_tensors(steps: Sequence[Any]) -> list[Any]:
    """Return transforms of Pillow's images as those of version 2, with the same arguments, on tensors of bytes.

    Raises:
        ValueError: None makes a tensor, or the first one does; or one before that is not torchvision's.
        AttributeError: One does not exist in version 2, or has other arguments.
    """
    if not any(map(is_torchvisions, steps)):
        raise ValueError
    from torchvision.transforms import v2

    def of_version_2(step: Any) -> Any:
        if not is_torchvisions(step):
            raise ValueError
        kind = getattr(v2, type(step).__name__)
        if isinstance(step, kind):
            return step
        given = {name: getattr(step, name) for name in inspect.signature(kind).parameters}
        if "transforms" in given:  # such as those of RandomApply
            given["transforms"] = [*map(of_version_2, given["transforms"])]
        return kind(**given)

    at = [type(step).__name__ in ("ToTensor", "PILToTensor", "ToImage") for step in steps].index(True)
    earlier, first, later = [*map(of_version_2, steps[:at])], steps[at], steps[at + 1 :]
    if not earlier or not is_torchvisions(first):
        raise ValueError
    if type(first).__name__ == "ToTensor":
        return [v2.PILToTensor(), *earlier, v2.ToDtype(torch.float32, scale=True), *later]
    return [first, *earlier, *later]


def _why_not_tensors(here: Context) -> str | None:
    dataset, steps = here.pipeline.dataset, steps_of(here.pipeline.dataset)
    if isinstance(dataset, IterableDataset):
        return STREAM
    try:
        changed = _on_tensors(steps)
    except (AttributeError, TypeError, ValueError):
        return "no transforms of torchvision work on Pillow images before ToTensor, PILToTensor or ToImage"
    from torchvision.transforms import Compose

    is_same = _is_same(copied(dataset), Compose(steps), Compose(changed), of=torch.mean, share=_NEAR)
    return None if is_same else "with the same random numbers, the transforms of version 2 would give other samples"


CHANGES = (
    Change(
        "crop_first",
        lambda pipeline, moved: pipeline.replace(dataset=with_steps(pipeline.dataset, moved.order)),
        alters="nothing",
        input_only=True,
        line="Compose([..., {value}, ...])",
        advice=("crop-before",),
        why_not=_why_not_crop_first,
        next_value=lambda here, seen: next((m for m in _moves(steps_of(here.pipeline.dataset)) if m not in seen), None),
        source="https://docs.pytorch.org/vision/stable/transforms.html",
    ),
    Change(
        "in_memory",
        alters="memory",
        input_only=True,
        apply=lambda pipeline, kept: pipeline.replace(dataset=InMemory(pipeline.dataset, whole=kept == _WHOLE)),
        line="# In the dataset: the part before the random transforms is made once, and shared by forked workers.\n"
        "self.kept = [self.load(index) for index in range(len(self))]  # at the end of __init__\n"
        "sample = copy.copy(self.kept[index])  # in __getitem__, instead of loading it",
        advice=("cache-dataset",),
        why_not=_why_not_in_memory,
        next_value=lambda here, seen: None if seen else _WHOLE if is_fixed(copied(here.pipeline.dataset)) else _INPUTS,
        source="https://www.tensorflow.org/api_docs/python/tf/data/Dataset#cache",
    ),
    Change(
        "v2_tensors",
        lambda pipeline: pipeline.replace(dataset=with_steps(pipeline.dataset, _on_tensors)),
        input_only=True,
        why_not=_why_not_tensors,
        line="from torchvision.transforms import v2  # `...`: those of v2, with the same arguments\n"
        "v2.Compose([v2.PILToTensor(), ..., v2.ToDtype(torch.float32, scale=True), v2.Normalize(...)])",
        source="https://docs.pytorch.org/vision/stable/transforms.html#performance-considerations",
    ),
)
