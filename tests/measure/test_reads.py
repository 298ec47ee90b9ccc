"""Reads are told as they were, and what the counters cannot show is said."""

import os
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from bottleneck.loader import modes
from bottleneck.measure.evidence.io import (
    BlindSpots,
    IoCounters,
    Mount,
    StorageReads,
    find_blind_spots,
    is_data,
    mapped_data,
    mount_of,
    name_source,
    open_data,
    read_counters,
)
from bottleneck.measure.ladder import Arm
from tests.measure.ladders import make_ladder
from tests.support.as_json import said

RAW, CACHED = Arm(modes.ALL, "loader"), Arm(modes.HANDOFF, "loader")
COLD = Arm(modes.ALL, "loader", preparation="files dropped")


class Counters(StorageReads):
    """Reads what the test says."""

    def __init__(self, *values):
        super().__init__()
        self.values = list(values)

    def read(self):
        return self.values.pop(0) if self.values else None


def reads_of(*blocks, spots=None):
    """Reads of (arm, requested, storage, samples)."""
    reads = Counters(IoCounters(0, 0), *(IoCounters(requested, storage) for _, requested, storage, _ in blocks))
    reads.start((), spots)
    for arm, _, _, samples in blocks:
        reads.add(arm, IoCounters(0, 0), samples)
    return reads


def label(requested, storage, samples=10, arm=RAW):
    return said(reads_of((arm, requested, storage, samples)).summary())


def test_reads_from_storage_are_cold_and_from_the_page_cache_warm():
    # Guards: with a warm page cache reading looks free, so the result says which it was.
    assert label(1_000_000, 900_000)["label"] == "cold"
    assert label(1_000_000, 0)["label"] == "warm"
    assert label(1_000_000, 20_000)["label"] == "warm"  # read-ahead and metadata
    assert label(100, 0)["label"] == "none"
    found = label(1_000_000, 500_000)
    assert found["requested_bytes_per_sample"] == 100_000.0
    assert found["storage_bytes_per_sample"] == 50_000.0


def test_each_experiment_says_where_it_read_from():
    ladder = make_ladder(within_sample=("augment", "load"))
    drained = next(rung.drained for rung in ladder.rungs if rung.name == "raw")
    reads = reads_of((RAW, 1_000_000, 900_000, 10), (drained, 1_000_000, 700_000, 10), (CACHED, 500, 0, 10))
    rows = {row["name"]: row for row in said(reads.summary(ladder))["experiments"]}
    assert rows["raw"]["source"] == "disk"
    assert rows["raw"]["asked_bytes_per_sample"] == 100_000.0
    assert rows["raw"]["storage_bytes_per_sample"] == 80_000.0
    assert rows["after_collate"]["source"] == "none"
    assert "before_collate" not in rows  # no block of it was measured


def test_blocks_with_cold_files_are_not_counted_with_the_others():
    # Guards: `label` says where the unchanged job reads from.
    summary = said(reads_of((RAW, 1_000_000, 0, 10), (COLD, 1_000_000, 1_000_000, 10)).summary())
    assert summary["label"] == "warm"
    assert summary["storage_bytes_per_sample"] == 0


def test_mapped_files_are_read_without_asking():
    # Guards: np.memmap and LMDB do not show among the bytes asked for.
    mapped = BlindSpots(maps=True)
    assert name_source(IoCounters(100, 0, samples=10), BlindSpots()) == "none"
    assert name_source(IoCounters(100, 0, samples=10), mapped) == "page cache"
    assert name_source(IoCounters(100, 50_000, samples=10), mapped) == "disk"
    assert name_source(IoCounters(100, 5_000, samples=10), mapped) == "page cache"  # a page, for ten samples
    assert "mapped" in said(reads_of((RAW, 100, 0, 10), spots=mapped).summary())["missing"][0]


def test_a_network_file_system_leaves_it_unknown():
    spots = BlindSpots(uncounted=("nfs4",))
    assert name_source(IoCounters(1_000_000, 0, samples=10), spots) == "unknown"
    assert name_source(IoCounters(1_000_000, 900_000, samples=10), spots) == "disk"
    assert "nfs4" in said(reads_of((RAW, 1_000_000, 0, 10), spots=spots).summary())["missing"][0]


def test_data_on_a_network_file_system_is_found_by_what_the_dataset_names(tmp_path):
    class Files:
        def __init__(self, root):
            self.root = str(root)
            self.samples = [(str(root / "a.jpg"), 0)] * 1000

    local, remote = Mount("/", "ext4"), Mount(str(tmp_path), "nfs4")
    assert find_blind_spots(Files(tmp_path), (), (local, remote)) == BlindSpots(("nfs4",))
    assert find_blind_spots(Files(Path("/usr")), (), (local, remote)) == BlindSpots()
    assert find_blind_spots(object(), (), (local, remote)) == BlindSpots(("",))  # unknown
    assert find_blind_spots(object(), (), (local,)) == BlindSpots()


def test_counters_of_several_processes_are_added_up(monkeypatch):
    me = os.getpid()
    read = SimpleNamespace(read_chars=700, read_bytes=70, read_count=7)
    monkeypatch.setattr(psutil.Process, "io_counters", lambda self: read, raising=False)
    assert read_counters((me, me)) == IoCounters(1400, 140, 14)
    assert read_counters((me, 2**22 - 1)) is None
    monkeypatch.delattr(psutil.Process, "io_counters")  # as on macOS
    assert read_counters((me,)) is None


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="this system does not tell what a process reads")
def test_what_this_process_reads_is_seen(tmp_path):
    file = tmp_path / "file"
    file.write_bytes(os.urandom(100_000))
    reads = StorageReads()
    reads.start((os.getpid(),))
    before = reads.read()
    file.read_bytes()
    reads.add(RAW, before, 1)
    assert said(reads.summary())["requested_bytes_per_sample"] >= 100_000


# --- where data lies is found without reading it: by mounts, open files, maps and what the dataset names ---


MOUNTS = (
    Mount("/", "ext4"),
    Mount("/data sets", "nfs4"),
    Mount("/dev/shm", "tmpfs"),
    Mount("/mnt/s3", "fuse.s3fs"),
    Mount("/data sets/local", "xfs"),
)


def test_a_path_lies_on_the_longest_mount_that_holds_it():
    kinds = {path: mount_of(path, MOUNTS).kind for path in ("/x", "/data sets/a", "/data sets/local/a", "/mnt/s3")}
    assert kinds == {"/x": "ext4", "/data sets/a": "nfs4", "/data sets/local/a": "xfs", "/mnt/s3": "fuse.s3fs"}
    assert mount_of("/data setsish", MOUNTS).kind == "ext4"
    assert mount_of("/data sets/a", (*MOUNTS, Mount("/data sets", "ceph"))).kind == "ceph"
    assert mount_of("/x", ()) is None


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("/data/a.jpg", True),
        ("/dev/shm/set.bin", True),
        ("/dev/shm/torch_12_3", False),
        ("/dev/null", False),
        ("/proc/self/io", False),
        ("socket:[123]", False),
        ("/lib/libc.so.6", False),
        ("/code/job.py", False),
        ("/data/a.jpg (deleted)", False),
    ],
)
def test_code_devices_and_what_is_gone_are_no_data(path, data):
    assert is_data(path) is data


def test_files_that_are_open_for_reading_are_found(tmp_path):
    paths = {mode: tmp_path / f"{mode}.bin" for mode in ("rb", "wb", "ab", "r+b", "w+b")}
    for path in paths.values():
        path.touch()
    opened = [path.open(mode) for mode, path in paths.items()]
    try:
        found = open_data((os.getpid(), 2**22 - 1))
    finally:
        for file in opened:
            file.close()
    here = {path for path in found if path.startswith(str(tmp_path))}
    assert here == {str(paths[mode]) for mode in ("rb", "r+b", "w+b")}


def test_files_that_are_mapped_are_found(tmp_path):
    folder = tmp_path / "42"
    folder.mkdir()
    (folder / "maps").write_text(
        "7f00-7f10 r--p 00000000 fe:00 12 /data/set.npy\n"
        "7f10-7f20 r--p 00000000 fe:00 13 /opt/engine\n"
        "7f20-7f30 r-xp 00000000 fe:00 13 /opt/engine\n"
        "7f30-7f40 rw-p 00000000 00:00 0 [heap]\n"
        "7f40-7f50 r--p 00000000 fe:00 14 /usr/lib/locale/locale-archive\n"
        "7f50-7f60 rw-s 00000000 00:19 15 /dev/shm/torch_1_2_0 (deleted)\n"
    )
    assert mapped_data((42, 43), tmp_path) == ["/data/set.npy"]
