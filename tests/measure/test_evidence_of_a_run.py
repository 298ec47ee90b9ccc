"""What a run measured beside its blocks is of the types that its annotations promise: it can be read again."""

from __future__ import annotations

import pytest

from bottleneck.measure.options import MeasureOptions
from bottleneck.results.json import from_json, to_json
from tests.support.results_factory import make_result
from tests.support.sessions import pipeline_of, run


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.integration)])
def test_evidence_is_read_as_it_was_measured(workers, monkeypatch):
    monkeypatch.setattr("bottleneck.measure.session.pinned_bytes_per_s", lambda device: 25e9)
    pipeline = pipeline_of(train_step=lambda batch: batch[0].sum(), num_workers=workers)
    outcome = run(pipeline, MeasureOptions(budget_s=1.0))
    assert outcome.failure is None
    evidence = outcome.measurement.evidence
    assert from_json(to_json(make_result(evidence=evidence))).evidence == evidence
    assert evidence.first_batch_s > 0
    assert evidence.payload.tensors[0].shape == (4, 8)
    assert evidence.loader.iterable is False
    assert evidence.loader.pinned_bytes_per_s == 25e9
    assert evidence.trace.device.steps
    assert evidence.wait_s.count
