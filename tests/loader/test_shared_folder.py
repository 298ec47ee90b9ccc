"""What a killed diagnosis left behind is removed by the next one, and nothing else."""

import os
import time

import pytest

from bottleneck.loader import control as control_module
from bottleneck.loader.control import CONTROL, make_folder, remove_abandoned

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


def test_the_folder_of_one_that_runs_stays(parent):
    alive, control = make_folder(4096)
    os.utime(alive, OLD)
    _, other = make_folder(4096)
    assert alive.exists()
    other.close()
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


def test_a_new_folder_stays_even_if_it_is_not_locked_yet(parent):
    folder, control = make_folder(4096)
    control.close()
    remove_abandoned(parent)
    assert folder.exists()


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
