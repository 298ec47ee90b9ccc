"""Waits and reads are told as they were."""

import os
from pathlib import Path

import pytest

from bottleneck.measure.arms import Arm
from bottleneck.measure.evidence import IoCounters, StorageReads, summarise_waits
from bottleneck.staging import stages

RAW, CACHED = Arm(stages.ALL, "loader"), Arm(stages.HANDOFF, "loader")


def test_percentiles_of_the_wait():
    waits = summarise_waits([n / 100 for n in range(101)])
    assert waits == {"p50": 0.5, "p95": 0.95, "p99": pytest.approx(0.99), "max": 1.0}
    assert summarise_waits([0.25]) == {"p50": 0.25, "p95": 0.25, "p99": 0.25, "max": 0.25}


class Counters(StorageReads):
    """Reads what the test says."""

    def __init__(self, *values):
        super().__init__()
        self.values = list(values)

    def read(self):
        return self.values.pop(0) if self.values else None


def label(requested, storage, samples=10, arm=RAW):
    reads = Counters(IoCounters(0, 0), IoCounters(requested, storage))
    reads.start(())
    reads.add(arm, IoCounters(0, 0), samples)
    return reads.summary()


def test_reads_from_storage_are_cold_and_from_the_page_cache_warm():
    # Guards: with a warm page cache reading looks free, so the result says which it was.
    assert label(1_000_000, 900_000)["label"] == "cold"
    assert label(1_000_000, 0)["label"] == "warm"
    assert label(1_000_000, 20_000)["label"] == "warm"  # read-ahead and metadata
    assert label(100, 0)["label"] == "none"
    assert label(1_000_000, 500_000) == {
        "requested_bytes_per_sample": 100_000.0, "storage_bytes_per_sample": 50_000.0, "label": "cold",
    }  # fmt: skip


def test_only_blocks_that_really_load_count():
    assert label(1_000_000, 0, arm=CACHED) is None


def test_where_the_system_does_not_tell_nothing_is_said():
    reads = Counters(None)
    reads.start(())
    reads.add(RAW, None, 10)
    assert reads.summary() is None


def test_a_worker_that_is_gone_is_no_error():
    reads = StorageReads()
    reads.start((2**22 - 1,))
    assert reads.read() is None


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="this system does not tell what a process reads")
def test_what_this_process_reads_is_seen(tmp_path):
    file = tmp_path / "file"
    file.write_bytes(os.urandom(100_000))
    reads = StorageReads()
    reads.start((os.getpid(),))
    before = reads.read()
    file.read_bytes()
    reads.add(RAW, before, 1)
    assert reads.summary()["requested_bytes_per_sample"] >= 100_000
