"""Cold files are files that are seen to be gone from memory, each read once; else nothing is claimed."""

import os
import random
import shutil
import time
from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import Dataset

from bottleneck.loader import modes
from bottleneck.measure import cold
from bottleneck.measure.cold import (
    ColdFiles,
    NoColdError,
    check_reads,
    drop_files,
    find_resident,
    sample_pages,
    with_cold,
)
from bottleneck.measure.evidence.io import IoCounters
from bottleneck.measure.ladder import Arm
from bottleneck.measure.options import MeasureOptions
from bottleneck.results.evidence import Evidence
from tests.measure.ladders import make_ladder
from tests.support.as_json import said
from tests.support.sessions import pipeline_of, run

RAW = Arm(modes.ALL, "loader")
COLD = Arm(modes.ALL, "loader", preparation="files dropped")
RESTING = Arm(modes.HANDOFF, "loader")
FILES = {f"/data/{n}": 40_960 for n in range(20)}


class FakeLoader:
    """Notes its requests."""

    num_workers = 2

    def __init__(self):
        self.order, self.pool_position, self.pool_received = self, 0, 0
        self.log = []

    def rest(self):
        self.log.append("rest")

    def restart_pool(self, at=0):
        self.pool_position = at
        self.log.append(f"restart {at}")

    def switch_real(self):
        self.log.append("switch")

    def next_batch(self):
        self.pool_position += 1
        self.log.append("batch")
        return None, 4


@pytest.fixture
def cache(monkeypatch):
    """A page cache that lets go of all but the named number of pages, after some tries."""
    state = {"stays": 0, "tries": 0, "drops": 0, "reports": True, "there": None}

    def drop(files):
        state["drops"] += 1

    def find_resident(pages):
        if not state["reports"]:
            return None
        if not state["drops"]:
            return list(pages)[: state["there"]]
        return list(pages)[: state["stays"]] if state["drops"] > state["tries"] else list(pages)

    monkeypatch.setattr(cold, "drop_files", drop)
    monkeypatch.setattr(cold, "find_resident", find_resident)
    return state


def pool_of(loader=None, batches=30):
    made = ColdFiles(loader or FakeLoader(), SimpleNamespace(evidence=Evidence(), ladder=None), None, 0, lambda _: None)
    made.files, made._batches, made._samples = FILES, batches, 4 * batches
    return made


def evidence_of(pool):
    pool.note(None)
    return said(pool._ledger.evidence.cold)


def test_files_that_are_gone_from_memory_are_cold(cache):
    pool = pool_of()
    assert pool.drop()
    assert evidence_of(pool) == {
        "verified": True, "files": 20, "bytes": 819_200, "reason": None, "batches": 30, "samples": 120,
        "resident_share": 0.0,
    }  # fmt: skip


def test_where_it_is_not_known_what_is_in_memory_nothing_is_proven(cache):
    cache["there"] = 3
    assert not pool_of().drop()
    cache["reports"] = False
    with pytest.raises(NoColdError, match="does not report"):
        pool_of().drop()


def test_files_that_stay_in_memory_are_not_called_cold(cache):
    cache["stays"] = 20
    pool = pool_of()
    pool.prepare_for(COLD)
    assert "31 % of the files' pages stayed in memory" in pool.failure
    assert not evidence_of(pool)["verified"]


def test_what_a_cold_block_left_unread_is_read_before_anything_warm(cache):
    # Guards: raw would read from the disk what the block before it has not come to.
    loader = FakeLoader()
    pool = pool_of(loader)
    pool.prepare_for(COLD)
    assert loader.log == ["rest", "restart 0"]
    loader.pool_received = 27
    pool.end_block()
    loader.log.clear()
    pool.prepare_for(RESTING)
    assert loader.log == []
    pool.prepare_for(RAW)
    assert loader.log == ["rest", "restart 27", "switch", "batch", "batch", "batch"]
    loader.log.clear()
    pool.prepare_for(RAW)
    assert loader.log == []


def test_a_cold_block_asks_for_no_batch_twice(cache):
    loader = FakeLoader()
    pool = pool_of(loader, batches=30)
    loader.pool_position = 11  # batches before the block, and those requested ahead
    assert pool.limit(100) == 18
    assert pool.limit(7) == 7
    loader.pool_position = 29
    assert pool.limit(100) == 2


def test_without_a_pool_nothing_is_prepared_and_the_experiment_says_why(cache, monkeypatch):
    cache["stays"] = 20
    loader = FakeLoader()
    pool = pool_of(loader)
    monkeypatch.setattr(pool, "_make_pool", lambda _: pool.drop())
    pool.make_pool(6.0)
    loader.log.clear()
    pool.prepare_for(RAW)
    pool.restore()
    assert loader.log == []
    left = pool.left_of(make_ladder())
    assert left.prepared_arms() == ()
    assert "stayed in memory" in left.rungs[-1].reason


def check(requested, storage, asked=800_000, dropped=True):
    check_reads(IoCounters(requested, storage), asked, 20, FILES, opens=20, dropped=dropped)


def test_reads_from_storage_prove_it_and_so_do_files_that_were_seen_to_go():
    check(800_000, 790_000, dropped=False)
    check(800_000, 0)  # of a network file system, whose reads from storage are not counted


@pytest.mark.parametrize(
    ("reads", "why"),
    [
        ({"requested": 800_000, "storage": 0, "dropped": False}, "little of its files was in memory"),
        ({"requested": 9_000_000, "storage": 800_000, "asked": 9_000_000}, "code in C opens other files"),
        ({"requested": 1_000, "storage": 0}, "reads nothing twice"),
    ],
)
def test_reads_that_do_not_fit_prove_nothing(reads, why):
    with pytest.raises(NoColdError, match=why):
        check(**reads)


def test_the_experiment_lies_beyond_raw_and_adds_storage():
    ladder = make_ladder(within_sample=("augment", "load"))
    made = with_cold(ladder, None)
    assert made.rungs[-1].name == "cold"
    assert made.rungs[-1].coupled == COLD
    assert made.rungs[-1].drained is None
    assert made.rungs[-1].workers.preparation
    assert (made.spans[-1].name, made.spans[-1].inner, made.spans[-1].outer) == ("storage", "raw", "cold")
    assert COLD in made.deciding_arms()
    assert made.raw == ladder.raw
    gone = with_cold(made, "no")
    assert [rung.reason for rung in gone.rungs if rung.name == "cold"] == ["no"]
    assert gone.spans == ladder.spans
    assert not gone.prepared_arms()
    alone = with_cold(make_ladder(hands_over=False, within_sample=("load",)), None)
    assert alone.rungs[-1].drained.preparation


# --- pages -------------------------------------------------------------------------------------------------

needs_dropping = pytest.mark.skipif(
    not hasattr(os, "RWF_NOWAIT"), reason="this system cannot drop single files from memory"
)


@pytest.mark.integration
@needs_dropping
def test_a_dropped_file_is_out_of_memory_and_a_read_one_is_in_it(disk_folder):
    path = disk_folder / "file"
    with path.open("wb") as file:
        file.write(os.urandom(1 << 20))
        file.flush()
        os.fsync(file.fileno())
    pages = sample_pages({str(path): 1 << 20}, random.Random(0))
    assert find_resident(pages) == pages
    deadline = time.monotonic() + 10
    while True:  # a page that somebody has just hold of stays
        drop_files([path])
        # Looking brings in nothing that counts afterwards.
        found = find_resident([*pages, *pages])
        if not found or time.monotonic() > deadline:
            break
    assert found == []
    path.read_bytes()
    assert find_resident(pages) == pages


# --- with real workers -------------------------------------------------------------------------------------

SLOW_S = 0.010


class Files(Dataset):
    """Waits for a file that is not in memory, as for a slow disk."""

    def __init__(self, folder, files=160):
        self.paths = []
        for number in range(files):
            self.paths.append(os.path.join(folder, f"{number}.bin"))
            with open(self.paths[-1], "wb") as file:
                file.write(os.urandom(20_000))
                file.flush()
                os.fsync(file.fileno())

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        with open(self.paths[index], "rb") as file:
            try:
                os.preadv(file.fileno(), [bytearray(1)], 0, os.RWF_NOWAIT)
            except OSError:
                time.sleep(SLOW_S)
            return torch.frombuffer(bytearray(file.read(1_000)), dtype=torch.uint8)


def diagnosed(dataset, budget_s=6.0, workers=1):
    pipeline = pipeline_of(dataset, train_step=lambda batch: time.sleep(0.002), batch_size=2, num_workers=workers)
    outcome = run(pipeline, MeasureOptions(budget_s=budget_s, cold=True))
    assert outcome.failure is None
    return outcome.measurement


@pytest.mark.integration
def test_what_a_job_waits_for_cold_files_is_storage(disk_folder):
    files = Files(disk_folder)
    for budget_s in (6.0, 25.0):  # at length where others keep the machine busy
        found = diagnosed(files, budget_s)
        evidence, measured = found.evidence.cold, {e.name: e for e in found.experiments}
        if measured["cold"].coupled and measured["raw"].coupled:
            break
    if "stayed in memory" in (evidence.reason or ""):
        pytest.skip("this machine is busy, and holds on to pages for longer than is waited for")
    assert evidence.verified, evidence.reason
    assert evidence.resident_share <= 0.05
    assert evidence.files == evidence.samples
    assert found.stages[-1].name == "storage"
    planted_s = 2 * SLOW_S
    raw_s = measured["raw"].coupled.seconds_per_batch
    assert measured["cold"].coupled.seconds_per_batch > raw_s + planted_s / 4  # in blocks of two batches, edges count
    rows = {row.name: row.source for row in found.evidence.reads.experiments}
    assert rows["raw"] == "page cache"
    assert rows["cold"] == "disk"


@pytest.mark.integration
def test_where_nothing_can_be_dropped_nothing_is_claimed():
    if not os.access("/dev/shm", os.W_OK):
        pytest.skip("there is no shared memory here")
    folder = f"/dev/shm/cold-{os.getpid()}"
    os.mkdir(folder)
    try:
        found = diagnosed(Files(folder), budget_s=3.0)
    finally:
        shutil.rmtree(folder)
    assert not found.evidence.cold.verified
    assert "memory" in found.evidence.cold.reason
    assert not found.experiments[-1].available
    assert found.experiments[-1].reason == found.evidence.cold.reason
    assert "storage" not in {stage.name for stage in found.stages}
    assert found.evidence.reads.label == "warm"
