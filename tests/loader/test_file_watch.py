"""The files that code opens are noted while that is asked for, and only then."""

import io
import os
import subprocess
import sys
import types

import pytest

from bottleneck.loader.file_watch import FileWatch

# An audit hook stays for ever, so that the real one is tried in a process of its own.
IN_A_PROCESS = """
import os, pathlib, sys
from bottleneck.loader.file_watch import FileWatch
folder = pathlib.Path(sys.argv[1])
os.chdir(folder)
watch = FileWatch()
open(folder / "before").read()
watch.start()
open(folder / "path").read()
open(str(folder / "text"), "rb").read()
open("relative").read()
os.close(os.open(os.fsencode(folder / "bytes"), os.O_RDONLY))
open(folder / "written", "w").close()
open(folder / "text").read()
noted = watch.stop()
open(folder / "after").read()
print(*sorted(os.path.basename(path) for path in noted.opened), noted.opens, all(map(os.path.isabs, noted.opened)))
"""


def test_every_way_to_open_is_noted_once_and_writing_is_not(tmp_path):
    for name in ("before", "path", "text", "relative", "bytes", "after"):
        (tmp_path / name).touch()
    run = subprocess.run(
        [sys.executable, "-c", IN_A_PROCESS, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert run.stdout.split() == ["bytes", "path", "relative", "text", "5", "True"]


@pytest.fixture
def watch(monkeypatch):
    monkeypatch.setattr(sys, "addaudithook", lambda hook: None)
    return FileWatch()


def test_readers_in_c_are_noted_by_their_python_functions_meanwhile(watch, monkeypatch):
    module = types.ModuleType("cv2")
    module.imread = lambda path, flags=1: f"{path} {flags}"
    original = module.imread
    monkeypatch.setitem(sys.modules, "cv2", module)
    watch.start()
    assert module.imread("/data/a.jpg", flags=0) == "/data/a.jpg 0"
    noted = watch.stop()
    assert noted.opened == ("/data/a.jpg",)
    assert module.imread is original


def test_descriptors_are_no_files(watch):
    watch.start()
    watch._note(3)
    watch._note(io.StringIO())
    watch._note("/a", os.O_WRONLY | os.O_CREAT)
    watch._note("/b", os.O_RDWR)
    assert watch.stop().opened == ("/b",)
