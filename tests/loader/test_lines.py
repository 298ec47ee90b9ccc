"""The line that a sample belongs to, and the traces of sampling, in invented time."""

import dis
import gc
import hashlib
import os
import shutil
import sys
import threading
import time
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import bottleneck.loader
from bottleneck.loader.observing.lines import EVERY_S, NOWHERE, LineSampler, line_of, line_within
from bottleneck.loader.observing.meter import Spent
from bottleneck.loader.observing.observation import Line

OURS = str(Path(bottleneck.loader.__file__).parent / "observing" / "observe.py")
UNCHARGED = str(Path(bottleneck.loader.__file__).parent / "observing" / "images.py")
LIBRARY = torch.__file__
COPY = shutil.__file__
ENTRY = SimpleNamespace(co_filename=OURS, co_name="_item")


def stack(*frames):
    """The innermost of some frames: (file, line, function, module), the outermost first, below our entry."""
    made = SimpleNamespace(f_code=ENTRY, f_lasti=0, f_globals={}, f_back=None)
    for file, line, function, module in frames:
        code = (lambda: None).__code__.replace(co_filename=file, co_name=function, co_firstlineno=line)
        made = SimpleNamespace(f_code=code, f_lasti=0, f_globals={"__name__": module}, f_back=made)
    return made


ITEM = ("/job/train.py", 38, "__getitem__", "__main__")
HELPER = ("/job/parts.py", 7, "crop", "parts")
CALL = (OURS, 90, "_run_in", "bottleneck.loader.observing.observe")
NOTES = (UNCHARGED, 20, "see_loaded", "bottleneck.loader.observing.images")
COPYING = (COPY, 128, "deepcopy", "copy")
DEEPER = (COPY, 211, "_deepcopy_list", "copy")
TRANSFORM = (LIBRARY, 50, "forward", "torchvision.transforms")
TENSORS = (LIBRARY, 60, "resize", "torchvision.functional")
MODULE = (LIBRARY, 1783, "_call_impl", "torch.nn.modules.module")
NO_GRAD = (LIBRARY, 120, "decorate_context", "torch.utils._contextlib")
PROXY = ("<string>", 2, "__getitem__", "")
MANAGER = (COPY, 824, "_callmethod", "multiprocessing.managers")
LEAVING = (COPY, 141, "__exit__", "contextlib")
FROZEN = ("<frozen importlib._bootstrap>", 1, "_find_and_load", "importlib")


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        ([ITEM], Line("/job/train.py", 38, "__getitem__", None, False)),
        ([ITEM, COPYING, DEEPER], Line("/job/train.py", 38, "__getitem__", "copy.deepcopy", False)),
        ([ITEM, HELPER], Line("/job/parts.py", 7, "crop", None, False)),
        ([TENSORS, ITEM, COPYING], Line("/job/train.py", 38, "__getitem__", "copy.deepcopy", False)),
        # a cut or mark: what we call, and the user's line where that is code in C
        ([ITEM, CALL, HELPER], Line("/job/parts.py", 7, "crop", None, False)),
        ([ITEM, CALL], Line("/job/train.py", 38, "__getitem__", None, False)),
        ([ITEM, CALL, TRANSFORM, TENSORS], Line(LIBRARY, 50, "forward", "torchvision.functional.resize", True)),
        ([CALL, MODULE, TRANSFORM], Line(LIBRARY, 50, "forward", None, True)),
        ([ITEM, CALL, LEAVING], Line("/job/train.py", 38, "__getitem__", None, False)),
        ([ITEM, PROXY, MANAGER], Line(*ITEM[:3], "multiprocessing.managers._callmethod", False)),
        ([ITEM, NO_GRAD, TENSORS], Line("/job/train.py", 38, "__getitem__", "torchvision.functional.resize", False)),
        ([TRANSFORM, FROZEN], Line(LIBRARY, 50, "forward", "importlib._find_and_load", True)),
        ([CALL], NOWHERE),
        ([ITEM, CALL, NOTES, TENSORS], None),
    ],
)  # fmt: skip
def test_a_sample_belongs_to_the_innermost_line_of_the_users_own(frames, expected):
    assert line_of(stack(*frames), (ENTRY,), (UNCHARGED,)) == expected


def spread(cells, at):
    for cell in range(len(cells)):
        distance = (cell - at) ** 2
        if distance < 2:
            cells[cell] = distance


def test_what_a_loop_computes_is_seen_where_it_begins_again():
    # Threads take turns at the jump back. It belongs to the last line of the loop, or to none before Python 3.12.
    code = spread.__code__.replace(co_filename=ITEM[0])
    jumps = [one for one in dis.get_instructions(code) if one.opname.startswith("JUMP_") and one.argval < one.offset]
    assert jumps
    for back in jumps:
        frame = SimpleNamespace(f_code=code, f_lasti=back.offset, f_globals={"__name__": "__main__"}, f_back=stack())
        assert line_of(frame, (ENTRY,), (UNCHARGED,)) == Line(ITEM[0], code.co_firstlineno + 1, "spread", None, False)


def test_code_that_we_did_not_call_has_no_line():
    assert line_of(stack(ITEM), (), (UNCHARGED,)) is None


LOOP = ("/job/train.py", 12, "main", "__main__")
NEXT = (OURS, 5, "__next__", "bottleneck.script.iterators")
SAVER = (OURS, 6, "save", "bottleneck.script.seen")
FIT = ("/site-packages/lightning/loop.py", 40, "advance", "lightning.loop")


@pytest.mark.parametrize(
    ("outer", "inner", "expected"),
    [
        ([LOOP], [], Line("/job/train.py", 12, "main", None, False)),
        ([LOOP], [SAVER, COPYING], Line("/job/train.py", 12, "main", "copy.deepcopy", False)),
        ([LOOP], [HELPER], Line("/job/parts.py", 7, "crop", None, False)),
        # the loop of a framework: the line that starts it says nothing
        ([LOOP, FIT], [HELPER], Line("/job/parts.py", 7, "crop", None, False)),
        ([LOOP, FIT], [TENSORS], Line(FIT[0], 40, "advance", "torchvision.functional.resize", True)),
    ],
)  # fmt: skip
def test_in_a_loop_a_sample_belongs_to_a_line_from_the_loop_inwards(outer, inner, expected):
    loop = stack(*outer)
    asked = stack(NEXT)
    asked.f_back = loop
    innermost = stack(*inner) if inner else loop
    if inner:
        lowest = innermost
        while lowest.f_back.f_code is not ENTRY:
            lowest = lowest.f_back
        lowest.f_back = loop
    assert line_within(innermost, [asked, loop]) == expected
    assert line_within(stack(COPYING), [asked, loop]) is None


# --- the sampler -------------------------------------------------------------------------------------------


def invented():
    """Clocks on which a second passes from one look to the next, half of it computing."""
    looks = count()

    def read():
        number = next(looks)
        return Spent(float(number), 0.5 * number)

    return read


def sampled(sampler, seen, samples=3):
    """Let a sampler run until it has taken so many samples."""
    sampler.start()
    while len(seen) < samples:
        pass
    sampler.stop()


def others():
    return [thread for thread in threading.enumerate() if thread.name == "bottleneck-lines"]


def test_a_sample_stands_for_the_usual_time_and_its_delay():
    seen = []
    sampler = LineSampler(lambda frame, passed: seen.append(passed), invented(), lambda: 0.0)
    sampled(sampler, seen)
    assert all(passed == Spent(1.0 + EVERY_S, 0.5 * (1.0 + EVERY_S)) for passed in seen)


def test_nothing_is_left_behind_however_often_it_starts():
    before_s = sys.getswitchinterval()
    sampler = LineSampler(lambda frame, passed: None)
    for _ in range(2):
        sampler.start()
        sampler.start()
        assert len(others()) == 1
        sampler.stop()
        sampler.stop()
        assert not others()
    assert sys.getswitchinterval() == before_s


@pytest.mark.parametrize("collects", [True, False])
def test_no_collection_begins_while_frames_are_looked_at(collects):
    # Guards: workers that ended with SIGSEGV, about one in thirty whose batches made much garbage.
    seen = []
    (gc.enable if collects else gc.disable)()
    try:
        sampled(LineSampler(lambda *_: seen.append(gc.isenabled()), invented(), lambda: 0.0), seen)
        assert not any(seen)
        assert gc.isenabled() == collects
    finally:
        gc.enable()


def fail(*_):
    raise RuntimeError("no clock")


@pytest.mark.parametrize("broken", ["see", "read"])
def test_a_sampler_that_fails_is_silent_and_samples_no_more(broken):
    looked = threading.Event()
    sampler = LineSampler(lambda *_: looked.set() or fail(), fail if broken == "read" else invented(), lambda: 0.0)
    sampler.start()
    assert broken == "read" or looked.wait(10)
    sampler.stop()
    sampler.start()
    assert not others()


def test_frames_are_not_read_without_a_gil(monkeypatch):
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    LineSampler(lambda frame, passed: None).start()
    assert not others()


def test_a_fork_while_it_runs_does_not_hang():
    sampler = LineSampler(lambda frame, passed: None, draw=lambda: 0.0)
    for _ in range(20):
        sampler.start()
        child = os.fork()
        sampler.stop()
        if child == 0:
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def computing_share(work, batches=60):
    """Return the share of computing in the time of short batches, by samples and by a clock."""
    spent = Spent()
    sampler = LineSampler(lambda _, passed: spent.add(passed))
    wall_s, cpu_s = time.perf_counter(), time.thread_time()
    for _ in range(batches):
        sampler.start()
        work()
        sampler.stop()
    wall_s, cpu_s = time.perf_counter() - wall_s, time.thread_time() - cpu_s
    return spent.cpu_s / spent.wall_s, cpu_s / wall_s


@pytest.mark.integration
def test_code_in_c_that_has_released_the_gil_computes():
    # Guards: decoders of images that computed for 5 ms and were said to wait for three quarters of it.
    pixels = bytes(8 << 20)
    sampled_share, true_share = computing_share(lambda: hashlib.sha256(pixels))
    assert sampled_share > 0.75 * true_share
    assert computing_share(lambda: time.sleep(0.006))[0] < 0.3
