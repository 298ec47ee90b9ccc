"""Where data lies is found without reading it: by mounts, open files, maps and what the dataset names."""

import os

import pytest

from bottleneck.measure.system.data_paths import is_data, mapped_data, named_paths, open_data
from bottleneck.measure.system.file_systems import Mount, mount_of, read_mounts

MOUNTINFO = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:26 / /data\\040sets rw,nosuid shared:9 master:3 - nfs4 server:/export rw,vers=4.2
31 22 0:27 / /dev/shm rw - tmpfs tmpfs rw
32 22 0:28 / /mnt/s3 rw - fuse.s3fs s3fs rw
33 30 0:29 / /data\\040sets/local rw - xfs /dev/sdb rw
short line
"""


@pytest.fixture
def proc(tmp_path):
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "mountinfo").write_text(MOUNTINFO)
    return tmp_path


def test_a_path_lies_on_the_longest_mount_that_holds_it(proc):
    mounts = read_mounts(proc)
    kinds = {path: mount_of(path, mounts).kind for path in ("/x", "/data sets/a", "/data sets/local/a", "/mnt/s3")}
    assert kinds == {"/x": "ext4", "/data sets/a": "nfs4", "/data sets/local/a": "xfs", "/mnt/s3": "fuse.s3fs"}
    assert mount_of("/data setsish", mounts).kind == "ext4"
    assert mount_of("/x", ()) is None
    assert read_mounts(proc / "none") == ()


def test_what_counts_reads_and_what_is_memory():
    assert Mount("/", "ext4").counts_reads
    assert not Mount("/", "nfs").counts_reads
    assert not Mount("/", "fuse.s3fs").counts_reads
    assert not Mount("/", "virtiofs").counts_reads
    assert Mount("/dev/shm", "tmpfs").in_memory


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


def test_files_that_are_open_for_reading_and_mapped_are_found(tmp_path):
    folder = tmp_path / "42"
    (folder / "fd").mkdir(parents=True)
    (folder / "fdinfo").mkdir()
    for number, (path, flags) in enumerate(
        [("/data/a.h5", "0100000"), ("/data/log", "0100001"), ("/data/b", "0100002"), ("/dev/pts/0", "0")]
    ):
        os.symlink(path, folder / "fd" / str(number))
        (folder / "fdinfo" / str(number)).write_text(f"pos:\t0\nflags:\t{flags}\nmnt_id:\t30\n")
    (folder / "maps").write_text(
        "7f00-7f10 r--p 00000000 fe:00 12 /data/set.npy\n"
        "7f10-7f20 r--p 00000000 fe:00 13 /opt/engine\n"
        "7f20-7f30 r-xp 00000000 fe:00 13 /opt/engine\n"
        "7f30-7f40 rw-p 00000000 00:00 0 [heap]\n"
        "7f40-7f50 r--p 00000000 fe:00 14 /usr/lib/locale/locale-archive\n"
        "7f50-7f60 rw-s 00000000 00:19 15 /dev/shm/torch_1_2_0 (deleted)\n"
    )
    assert sorted(open_data((42, 43), tmp_path)) == ["/data/a.h5", "/data/b"]
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
