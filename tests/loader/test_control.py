"""The integers that main process and workers share, and the files beside them."""

import multiprocessing
import os
import pickle
from pathlib import Path

import pytest

from bottleneck.loader import control as control_module
from bottleneck.loader import modes
from bottleneck.loader.control import Control


@pytest.fixture
def control():
    control = Control(3)
    yield control
    control.close()


def test_it_begins_with_everything_real(control):
    assert control.mode == modes.ALL
    assert control.plan_version == 0
    assert control.cache_bytes() == 0
    assert control.reports.by_worker() == {}


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


def test_the_pickle_carries_the_path_and_not_the_contents(control):
    control.publish_plan("x" * 100_000)
    assert len(pickle.dumps(control)) < 1000


@pytest.mark.integration
def test_a_forked_process_shares_it(control):
    process = multiprocessing.get_context("fork").Process(target=setattr, args=(control, "mode", 7))
    process.start()
    process.join()
    assert control.mode == 7


def test_a_report_written_again_replaces_the_one_before(control):
    for text in ("first", "second"):
        control.reports.write(0, text)
    assert control.reports.by_worker() == {0: "second"}


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


def test_nobody_else_may_read_it(control):
    assert control._folder.stat().st_mode & 0o077 == 0


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
