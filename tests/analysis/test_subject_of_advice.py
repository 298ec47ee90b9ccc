"""Advice is about what the user has: no setting of a DataLoader that is ours, no class of PyTorch's to edit."""

from dataclasses import replace

import pytest
import torch
from torch.utils.data import DataLoader, Subset, TensorDataset

from bottleneck.job.pipeline import Pipeline
from bottleneck.measure.ledger import describe_pipeline
from bottleneck.script.stream import stream_loader
from tests.analysis.rule_case import result_of
from tests.analysis.rule_cases.loading import _TINY
from tests.analysis.test_every_rule import CASES, names


def without_loader(case):
    """The same job, fed by a stream from the main process."""
    of_a_stream = {"loader": None, "batch_size": None, "num_workers": 0}
    return replace(case.deserves, pipeline={**case.deserves.pipeline, **of_a_stream})


_OF_WORKERS = ("worker-affinity",)
"""Given by what workers were seen to do."""
_CASES = [case for case in CASES if case.id not in _OF_WORKERS]


@pytest.mark.parametrize("case", _CASES, ids=names(_CASES))
def test_no_setting_of_a_loader_is_advised_where_there_is_none(case):
    for advice in result_of(without_loader(case)).advice:
        told = f"{advice.title} {advice.why} {advice.how}"
        assert not [word for word in ("DataLoader", "num_workers", "prefetch_factor") if word in told], told


def test_batches_from_anything_but_a_loader_are_described_as_such():
    job = Pipeline(dataset=[1], train_step=print)
    assert describe_pipeline(job, stream_loader([1, 2]))["loader"] is None
    assert "loader" not in describe_pipeline(job, DataLoader([1, 2]))


@pytest.mark.parametrize("kind", [Subset, TensorDataset, torch.utils.data.ConcatDataset])
def test_a_dataset_of_pytorchs_is_not_the_users_code(kind):
    told = {
        a.id: a.how for a in result_of(replace(_TINY, pipeline={**_TINY.pipeline, "dataset": kind.__name__})).advice
    }
    assert "let your dataset.__getitem__" in told["fetch-in-batches"]
    assert kind.__name__ not in told["fetch-in-batches"]


def test_a_dataset_of_the_users_is_named():
    assert "Rows.__getitem__" in {a.id: a.how for a in result_of(_TINY).advice}["fetch-in-batches"]
