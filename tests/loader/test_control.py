"""The shared memory of main process and workers, unsent reports, and the remains of a killed diagnosis."""

import os
import pickle
import time
from pathlib import Path

import pytest
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

from bottleneck.loader import control as control_module
from bottleneck.loader import modes
from bottleneck.loader.control import CONTROL, Control, make_folder, remove_abandoned
from bottleneck.loader.switched import SwitchedLoader


@pytest.fixture
def control():
    control = Control(3)
    yield control
    control.close()


def test_another_mapping_of_the_same_file_sees_every_change(control):
    other = pickle.loads(pickle.dumps(control))
    control.mode = modes.HANDOFF
    control.publish_plan({"a": 1})
    other.set_cache_bytes(2, 1 << 40)
    other.set_cache_bytes(0, 5)
    other.reports.write(1, "found")
    control.worker_cache_bytes = 1 << 40
    assert other.mode == modes.HANDOFF
    assert other.plan_version == 1
    assert other.worker_cache_bytes == 1 << 40
    assert other.read_plan() == {"a": 1}
    assert control.cache_bytes() == (1 << 40) + 5
    assert control.reports.by_worker() == {1: "found"}


def test_it_has_a_slot_for_every_worker():
    control = Control(2000)  # more than the smallest file holds
    control.set_cache_bytes(1999, 3)
    assert control.cache_bytes() == 3
    control.close()


def test_closing_leaves_no_file_and_may_be_done_twice():
    control = Control(1)
    folder = control._folder
    descriptors = len(os.listdir("/proc/self/fd"))
    control.close()
    control.close()
    assert not folder.exists()
    assert len(os.listdir("/proc/self/fd")) <= descriptors


def test_where_shared_memory_is_full_a_temporary_folder_is_used(monkeypatch, tmp_path):
    # Guards: writing through a map of a full tmpfs is a bus error.
    monkeypatch.setattr(control_module.tempfile, "tempdir", str(tmp_path))
    real = os.posix_fallocate
    calls = []

    def full_at_first(*args):
        calls.append(args)
        if len(calls) == 1:
            raise OSError(28, "No space left on device")
        real(*args)

    monkeypatch.setattr(os, "posix_fallocate", full_at_first)
    before = set(Path("/dev/shm").iterdir())
    control = Control(1)
    assert control._folder.parent == tmp_path
    assert set(Path("/dev/shm").glob("torch-bottleneck-*")) <= before
    control.close()


OLD = (time.time() - 3600,) * 2


@pytest.fixture
def parent(tmp_path, monkeypatch):
    monkeypatch.setattr(control_module, "_SHARED_MEMORY", tmp_path)
    return tmp_path


def test_the_folder_of_a_diagnosis_that_was_killed_is_removed_by_the_next(parent):
    left, control = make_folder(4096)
    (left / "plan").write_bytes(b"x")
    os.utime(left, OLD)
    control.close()  # as a process does that is killed
    folder, control = make_folder(4096)
    assert not left.exists()
    assert folder.exists()
    assert (folder / CONTROL).stat().st_size == 4096
    control.close()


def test_a_worker_that_was_forked_keeps_the_folder_too(parent):
    folder, control = make_folder(4096)
    os.utime(folder, OLD)
    in_a_worker = os.dup(control.fileno())
    control.close()
    remove_abandoned(parent)
    assert folder.exists()
    os.close(in_a_worker)
    remove_abandoned(parent)
    assert not folder.exists()


def test_what_is_not_such_a_folder_stays(parent):
    for name in ("torch-bottleneck-notes", "torch_1234_5", "else"):
        (parent / name).mkdir()
        os.utime(parent / name, OLD)
    (parent / "torch-bottleneck-file").write_text("mine")
    os.utime(parent / "torch-bottleneck-file", OLD)
    elsewhere = parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / CONTROL).write_text("")
    link = parent / "torch-bottleneck-link"
    link.symlink_to(elsewhere)
    os.utime(link, OLD, follow_symlinks=False)
    before = sorted(parent.rglob("*"))
    remove_abandoned(parent)
    assert sorted(parent.rglob("*")) == before


class Wrapping(DataLoader):
    """Works on each batch, so that it must get them all."""

    def __iter__(self):
        for batch in super().__iter__():
            yield batch + 1


@pytest.mark.parametrize(("kind", "skips"), [(DataLoader, True), (StatefulDataLoader, True), (Wrapping, False)])
def test_everything_real_is_handed_over_only_where_it_has_to_be(kind, skips):
    loader = SwitchedLoader(kind(range(8), batch_size=2), (), seed=0, hang_s=60.0)
    try:
        loader.switch_real(modes.OBSERVE)
        assert loader.mode == modes.ALL & (~modes.HANDOFF if skips else ~0) | modes.OBSERVE
        assert (loader.next_batch()[0] is None) == skips
    finally:
        loader.close()
