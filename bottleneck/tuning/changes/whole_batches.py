"""Whole batches by one call, where the dataset takes a list of indices."""

from __future__ import annotations

from typing import Any

from torch.utils.data import IterableDataset, default_collate, default_convert

from bottleneck.job.pipeline import Pipeline
from bottleneck.loader import trees
from bottleneck.loader.worker.user_code import fetches_batches
from bottleneck.tuning.change import Change, Here
from bottleneck.tuning.datasets import inside_subsets, with_changed_inside, with_the_same_random
from bottleneck.tuning.travel import collates_plainly

_SAMPLES = 8
"""That are fetched in both ways, to see whether they are the same: so many dice do not fall alike by chance."""


class _FetchesBatches:
    """Stands as `__getitems__` of a dataset that takes lists of indices; goes to workers, whichever way they start."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __call__(self, indices: list[int]) -> Any:
        batch = default_convert(self._dataset[indices])  # type: ignore[no-untyped-call]  # torch's
        return list(batch) if type(batch) is tuple else batch  # as `default_collate` gives it


def _is_collated(batch: Any) -> Any:
    return batch


def _why_not(here: Here) -> str | None:
    dataset = here.pipeline.dataset
    if isinstance(dataset, IterableDataset):
        return "the dataset is a stream"
    if fetches_batches(dataset):
        return "the dataset has a __getitems__, which the loader calls already"
    if here.loader.batch_size is None:
        return "the loader does not choose the batches: a batch_sampler or the dataset does"
    if not collates_plainly(here.pipeline):
        return "the loader has a collate_fn of its own, for samples one by one"
    return None if _gives_the_same(dataset) else "the dataset gives no batch for a list of indices"


def _gives_the_same(dataset: Any) -> bool:
    inside = inside_subsets(dataset)
    try:
        length = len(inside)
        indices = [at * length // _SAMPLES for at in reversed(range(_SAMPLES))]
        one_by_one, at_once = with_the_same_random(
            lambda: default_collate([inside[index] for index in indices]), lambda: _FetchesBatches(inside)(indices)
        )
    except Exception:  # noqa: BLE001 - the user's dataset, asked for what it may not know
        return False
    return trees.equal(one_by_one, at_once)


def _in_one_call(pipeline: Pipeline) -> Pipeline:
    def change(dataset: Any) -> None:
        dataset.__getitems__ = _FetchesBatches(inside_subsets(pipeline.dataset))

    return pipeline.replace(dataset=with_changed_inside(pipeline.dataset, change), collate_fn=_is_collated)


CHANGES = (
    Change(
        "whole_batches", _in_one_call, alters="nothing",
        line="DataLoader(dataset, sampler=BatchSampler(RandomSampler(dataset), batch_size, drop_last=False), "
        "batch_size=None)",
        advice=("fetch-in-batches",), why_not=_why_not,
        source="https://docs.pytorch.org/docs/stable/data.html",
    ),
)  # fmt: skip
