"""Counters in the libraries that a worker calls, which are restored afterwards."""

import array
import gzip
import io
import sys
import tarfile
import zipfile
from contextlib import suppress
from types import SimpleNamespace

import cv2
import numpy as np
import pandas as pd  # noqa: F401 - pyarrow imports it late
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from bottleneck.loader.examining import touches as touches_module
from bottleneck.loader.examining.touches import SOURCES, Touches, _chunks, read_bytes

with suppress(ImportError):
    import av  # it is checked that it is restored


def places():
    """Return the present state of everything that may be replaced."""
    found = {}
    for place in (place for _, places in SOURCES.values() for place in places.split()):
        module, _, path = place.partition(":")
        owner, *rest = [sys.modules.get(module), *path.split(".")]
        for name in rest[:-1]:
            owner = getattr(owner, name, None)
        if owner is not None:
            found[place] = vars(owner).get(rest[-1])
    return found


@pytest.fixture
def touches():
    before = places()
    yield Touches(lambda: "load")
    assert places() == before


def parquet(folder):
    rows = [bytes(1000)] * 40
    pq.write_table(pa.table({"row": pa.array(rows, pa.binary())}), folder / "rows.parquet", row_group_size=20)

    def read():
        return pq.ParquetFile(folder / "rows.parquet").read_row_group(1)["row"][3].as_py()

    return read


def views(folder):
    torch.save(torch.zeros(100, 10)[3], folder / "view.pt")
    return lambda: torch.load(folder / "view.pt")


def volume(folder):
    with gzip.open(folder / "volume.npy.gz", "wb") as file:
        np.save(file, np.zeros((50, 10, 10)))

    def read():
        with gzip.open(folder / "volume.npy.gz") as file:
            return np.load(file)[3]

    return read


def skipped(folder):
    with gzip.open(folder / "volume.gz", "wb") as file:
        file.write(np.random.default_rng(0).bytes(40_000))

    def read():
        with gzip.open(folder / "volume.gz") as file:
            file.seek(39_000)
            return file.read(10)

    return read


def mapped(folder):
    np.save(folder / "mapped.npy", np.zeros(10))
    return lambda: np.load(folder / "mapped.npy", mmap_mode="r")[3]


def picture(folder):
    cv2.imwrite(str(folder / "picture.png"), np.zeros((20, 10, 3), np.uint8))
    return lambda: cv2.imread(str(folder / "picture.png"))


def archive(folder):
    with zipfile.ZipFile(folder / "all.zip", "w") as file:
        file.writestr("one", bytes(500))
    return lambda: zipfile.ZipFile(folder / "all.zip").read("one")


def video(folder):
    writer = cv2.VideoWriter(str(folder / "film.avi"), cv2.VideoWriter_fourcc(*"MJPG"), 10, (64, 64))
    for value in range(10):
        writer.write(np.full((64, 64, 3), value, np.uint8))
    writer.release()

    def read():
        film = cv2.VideoCapture(str(folder / "film.avi"))
        return [film.read() for _ in range(7)]

    return read


def film(folder):
    pytest.importorskip("av")
    with av.open(str(folder / "film.mp4"), "w") as file:
        stream = file.add_stream("mpeg4", rate=10)
        stream.width = stream.height = 64
        frames = [av.VideoFrame.from_ndarray(np.full((64, 64, 3), value, np.uint8)) for value in range(10)]
        for frame in [*frames, None]:
            file.mux(stream.encode(frame))

    def read():
        with av.open(str(folder / "film.mp4")) as file:
            return [frame.to_ndarray() for frame in file.decode(video=0)][-1]

    return read


@pytest.mark.parametrize(
    ("make", "source", "calls", "nbytes", "units", "kept", "opens"),
    [
        (parquet, "parquet", 2, 20_000, 20, None, 1),
        (views, "saved-tensors", 1, 4000, 0, 40, 0),
        (volume, "array-file", 1, 40_000, 0, None, 0),
        (mapped, "array-file", 1, 0, 0, None, 1),
        (picture, "image", 1, 600, 0, None, 0),
        (archive, "archive", 1, 0, 0, None, 1),
        (archive, "compressed", 1, 500, 0, None, 0),
        (video, "video", 7, 0, 7, None, 0),
        (film, "video", 12, 0, 10, None, 1),
    ],
)
def test_a_library_is_counted_once_and_put_back(touches, tmp_path, make, source, calls, nbytes, units, kept, opens):
    read = make(tmp_path)
    with touches.counting():
        read()
    seen = touches.found[source, "load"]
    assert (seen.calls, seen.units, seen.kept, seen.opens) == (calls, units, kept, opens)
    assert nbytes <= seen.nbytes <= 1.1 * nbytes  # offsets and headers
    assert seen.opening_s <= seen.seconds


class VideoFrame:
    """As PyAV has it."""


class Packet:
    def decode(self):
        return [VideoFrame(), "a frame of audio", VideoFrame()]


def test_frames_are_those_that_packets_hold(touches, monkeypatch):
    monkeypatch.setitem(sys.modules, "av", SimpleNamespace(open=lambda path: [Packet(), Packet()]))
    monkeypatch.setitem(sys.modules, "av.packet", SimpleNamespace(Packet=Packet))
    with touches.counting():
        for packet in sys.modules["av"].open("film.mp4"):
            packet.decode()
    seen = touches.found["video", "load"]
    assert (seen.units, seen.calls, seen.names) == (4, 3, {"film.mp4"})


def test_functions_of_a_class_in_c_are_counted_and_put_back(monkeypatch):
    monkeypatch.setitem(touches_module.SOURCES, "video", (touches_module._frame, "array:array.tolist"))
    before, numbers, touches = vars(array.array)["tolist"], array.array("b", [1, 2]), Touches(lambda: "load")
    with touches.counting():
        assert numbers.tolist() == [1, 2]
    assert (touches.found["video", "load"].calls, numbers.tolist()) == (1, [1, 2])
    assert vars(array.array)["tolist"] is before
    assert touches.found["video", "load"].calls == 1


@pytest.mark.parametrize("make", [volume, skipped])
def test_what_is_unpacked_piece_by_piece_adds_up(touches, tmp_path, make):
    read = make(tmp_path)
    with touches.counting():
        read()
    assert 39_000 <= touches.found["compressed", "load"].nbytes <= 50_000


def test_libraries_are_put_back_after_an_error_and_kept_functions_count_no_more(touches, tmp_path):
    with pytest.raises(ValueError, match="the user's"), touches.counting():
        kept = np.load
        raise ValueError("the user's")
    np.save(tmp_path / "a.npy", np.zeros(4))
    assert kept(tmp_path / "a.npy").shape == (4,)
    assert touches.found == {}


def test_files_that_are_mapped_or_in_memory_are_no_files_that_are_opened(touches, tmp_path):
    np.save(tmp_path / "a.npy", np.zeros(4))
    with touches.counting(), tarfile.open(fileobj=io.BytesIO(), mode="w"):
        np.load(tmp_path / "a.npy", mmap_mode="r")
    assert touches.found["array-file", "load"].nbytes == 0
    assert touches.found["archive", "load"].opens == 0


@pytest.mark.parametrize(
    ("wanted", "chunks"),
    [
        (7, 2),
        ((7, 3), 1),
        ((slice(0, 20), 3), 2),
        (..., 20),
        ((..., 3), 10),
        ([1, 2, 95], 4),
        (slice(5, 5), 0),
        (-1, 2),
    ],
)
def test_a_selection_unpacks_whole_chunks(wanted, chunks):
    array = SimpleNamespace(shape=(100, 20), chunks=(10, 10), dtype=np.dtype("f4"))
    assert _chunks((array, wanted), np.zeros(3)).nbytes == chunks * 400


def test_an_array_without_chunks_is_read_as_it_is_asked_for():
    array = SimpleNamespace(shape=(100, 20), chunks=None, dtype=np.dtype("f4"))
    assert _chunks((array, 7), np.zeros(20, "f4"))[::2] == (80, 80)


def test_bytes_of_files_in_memory_count_as_read(tmp_path):
    (tmp_path / "a").write_bytes(bytes(50_000))
    before = read_bytes()
    (tmp_path / "a").read_bytes()
    assert before is None or read_bytes() - before >= 50_000
