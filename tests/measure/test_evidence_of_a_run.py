"""What a run measured beside its blocks is of the types that its annotations promise: it can be read again."""

from __future__ import annotations

import json

import pytest
import torch

from bottleneck.job.description import Pipeline
from bottleneck.measure.options import MeasureOptions
from bottleneck.measure.session import measure
from bottleneck.results.decoding import read_evidence
from bottleneck.results.encoding import plain
from bottleneck.results.records import Judgement


class Vectors:
    """Random vectors, as a map-style dataset."""

    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.full((8,), float(index))


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.integration)])
def test_evidence_is_read_as_it_was_measured(workers):
    pipeline = Pipeline(
        dataset=Vectors(), train_step=lambda batch: batch.sum(), batch_size=4, num_workers=workers, device="cpu"
    )
    precise = Judgement("device_bound", None, precise=True)
    outcome = measure(pipeline, MeasureOptions(budget_s=1.0), judge=lambda _: precise, on_progress=lambda _: None)
    assert outcome.failure is None
    evidence = outcome.measurement.evidence
    assert read_evidence(json.loads(json.dumps(plain(evidence, "evidence"), allow_nan=False))) == evidence
    assert evidence.first_batch_s > 0
    assert evidence.payload.tensors[0].shape == (4, 8)
    assert evidence.loader.iterable is False
    assert evidence.trace.device.steps
    assert evidence.wait_s.count
