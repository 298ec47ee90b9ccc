"""Where data lies is found without reading it: by mounts, open files, maps and what the dataset names."""

import os
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from bottleneck.measure.files import Mount, is_data, mapped_data, mount_of, named_paths, open_data, read_mounts

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


def test_the_mounts_of_this_machine(monkeypatch):
    assert mount_of(os.sep, read_mounts()).point == os.sep
    assert not Path("/proc/self/stat").exists() or mount_of("/proc/self/stat", read_mounts()).kind == "proc"

    def refuse(**_):
        raise FileNotFoundError("/proc/self/mounts")

    monkeypatch.setattr(psutil, "disk_partitions", refuse)
    assert read_mounts() == ()


def test_what_counts_reads():
    assert Mount("/", "ext4").counts_reads
    assert not Mount("/", "nfs").counts_reads
    assert not Mount("/", "fuse.s3fs").counts_reads
    assert not Mount("/", "virtiofs").counts_reads


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


def test_a_system_without_modes_shows_all_open_files(monkeypatch):
    files = [SimpleNamespace(path="/data/a.h5"), SimpleNamespace(path="/code/job.py")]
    monkeypatch.setattr(psutil.Process, "open_files", lambda self: files)
    assert open_data((os.getpid(),)) == ["/data/a.h5"]


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


def test_what_a_dataset_names_is_found_through_the_datasets_around_it(tmp_path):
    file = tmp_path / "a.bin"
    file.touch()

    class Inner:
        def __init__(self):
            self.samples = [(file, 1), ("nowhere/else", 2), "x\0y", *(["z/z"] * 10_000)]
            self.name = "train"

    class Outer:
        def __init__(self):
            self.dataset = Inner()
            self.itself = self

    assert named_paths(Outer()) == [str(file)]
    assert named_paths(3) == []
