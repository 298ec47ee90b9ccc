"""Waiting and reading are told in every format, and evidence of another shape is left out."""

from dataclasses import replace

import pytest

from bottleneck.reports import evidence as io
from bottleneck.results.records import Experiment, Stage
from tests.support.in_full import render_in_full
from tests.support.results_factory import make_interval, make_rate, make_result

STALLS = {"count": 60, "threshold_s": 0.02, "lost_share": 0.2, "period_batches": 16, "period_s": 0.4}
READS = {
    "experiments": [
        {"name": "after_collate", "asked_bytes_per_sample": 20.0, "storage_bytes_per_sample": 0.0, "source": "none"},
        {"name": "raw", "asked_bytes_per_sample": 102400.0, "storage_bytes_per_sample": 0.0, "source": "page cache"},
        {"name": "cold", "asked_bytes_per_sample": 10.0, "storage_bytes_per_sample": 204800.0, "source": "disk"},
    ],
    "missing": ["Data of this job is on nfs4."],
}


def sentences(result):
    return [text for section in io.reading(result) for items in section.blocks for text in items.texts]


def with_cold(result, *, available=True):
    cold = Experiment("cold", available, None if available else "no", make_rate(0.074) if available else None, None)
    storage = Stage("storage", "raw", "cold", None, make_interval(0.05, 0.001), None, make_interval(3.0, 0.1), "real")
    stages = (*result.stages, storage) if available else result.stages
    return replace(result, experiments=(*result.experiments, cold), stages=stages)


@pytest.mark.parametrize("kind", ["text", "markdown", "html"])
def test_every_format_tells_of_stalls_epochs_reads_and_the_cold_epoch(kind):
    evidence = {
        "stalls": STALLS, "reads": READS, "cold": {"files": 1200, "bytes": 2**30},
        "epoch_gap": {"seconds": 1.5, "persistent_workers": False, "started_anew": True},
    }  # fmt: skip
    report = " ".join(render_in_full(with_cold(make_result(evidence=evidence)), kind).split())
    assert (
        "waits of the main process over 20.0 ms: 60, one every 16 batches (400 ms), 20 % of the time of raw" in report
    )
    assert "the workers start anew: 1.50 s to the first batch" in report
    assert "raw 100 KiB a sample from the page cache, cold 200 KiB a sample from the disk" in report
    assert "Data of this job is on nfs4." in report
    assert "gets 216 samples/s, and one that finds them there 648" in report
    assert "1,200 files (1.00 GiB)" in report


def test_what_was_not_measured_is_not_told():
    assert sentences(make_result(evidence={})) == []
    assert io.cold_epoch(make_result()) == ""
    assert io.cold_epoch(with_cold(make_result(), available=False)) == ""
    assert sentences(make_result(evidence={"stalls": {**STALLS, "count": 0}})) == []


def test_stalls_without_a_period_say_so():
    found = sentences(make_result(evidence={"stalls": {**STALLS, "period_batches": None, "period_s": None}}))
    assert "at no regular distance" in found[0]


def test_waits_are_the_jobs_where_it_computes_in_the_main_process_and_else_are_not_called_so():
    # Guards: 'wait for a batch' beside a device that is busy all the time reads like idle time of it.
    for device, whose in (("cpu", ""), ("cuda:0", " of the main process")):
        result = make_result(evidence={"stalls": STALLS, "wait_s": {"p50": 0.01}}, environment={"device": device})
        waits, stalls = sentences(result)
        assert stalls.startswith(f"Stalls, waits{whose} over 20.0 ms: 60")
        assert waits.startswith(f"Wait{whose} for a batch")
        assert ("while the device may be busy: p50 10.0 ms" in waits) == bool(whose)
