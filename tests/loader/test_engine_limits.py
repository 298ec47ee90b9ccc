"""An engine with left-overs, with little memory, and with failing code of the user."""

import io
import os
import pickle
import subprocess
import sys
import types

import pytest
import torch
from torch.utils.data import default_collate

import bottleneck
from bottleneck.loader import control, modes, trees
from bottleneck.loader.control import Blank, Request, Single
from bottleneck.loader.engine import FileWatch
from bottleneck.loader.user_code import GivenUp, NoShareError, UserCode, UserCodeError, find_failure
from bottleneck.measure.prepare import warnings_of_plan
from tests.loader.engine_bench import RUN_AUGMENT, RUN_COLLATE, NothingBehind, Photos, Stream, engines

make = pytest.fixture(engines)


# --- memory ------------------------------------------------------------------------------------------------


class Large(Photos):
    def load_image(self, index):
        return torch.full((2500,), float(index))  # 10 kB


@bottleneck.stage("widen")
def widen(images):
    return images.double()


def test_the_caches_stay_within_their_memory(make):
    bench = make(Large(), batches=8, cache_bytes=200_000)
    assert 0 < bench.engine._store.nbytes <= 200_000
    assert bench.control.cache_bytes() == bench.engine._store.nbytes
    assert 0 < len(bench.engine._store.batches) < 8
    held = [(u.value, [(c.args, c.output) for c in u.calls]) for b in bench.engine._store.batches for u in b.items]
    assert trees.nbytes(held) <= 200_000


def test_a_batch_that_does_not_fit_is_told(make):
    nothing = make(Large(), cache_bytes=1000)
    assert not nothing.plan.has_samples
    assert not nothing.plan.has_collated
    only_batch = make(Large(), cache_bytes=22_000)
    assert only_batch.plan.has_collated
    assert not only_batch.plan.has_samples
    assert only_batch.run("after_collate")[0][1].tolist() == [0, 1]


def test_no_more_of_a_batch_is_recorded_than_there_is_room_for(make):
    # Guards: recorded whole before it was looked at, a batch of large images took its size once more in each worker.
    bench = make(Large(), cache_bytes=110_000, batches=0, size=20)
    recorder = bench.engine._recorder
    recorded = []
    note_unit = recorder._note_item
    recorder._note_item = lambda item, *rest, **given: (note_unit(item, *rest, **given), recorded.append(item.nbytes))
    batch = bench.record()
    assert len(batch[0]) == 20
    assert sum(recorded[:-1]) <= 110_000 < sum(recorded)
    report = bench.engine.report()
    assert report.has_samples
    assert not report.has_collated


def test_marked_stages_of_a_batch_that_is_not_kept_whole_are_not_measured(make):
    def collate_fn(samples):
        return widen(default_collate([image for image, _ in samples]))

    whole = make(Large(), cache_bytes=10**6, collate_fn=collate_fn)
    assert whole.plan.marks.collate == ("@widen",)
    short = make(Large(), cache_bytes=60_000, collate_fn=collate_fn)
    assert short.plan.marks.collate == ()
    assert any("widen" in one.message and "does not fit" in one.message for one in warnings_of_plan(short.plan))


# --- failures ----------------------------------------------------------------------------------------------


def test_a_sample_that_raises_is_told_with_its_index(make):
    class Broken(Photos):
        def load_image(self, index):
            if index == 51:
                raise ValueError("truncated file")
            return super().load_image(index)

    bench = make(Broken())
    with pytest.raises(UserCodeError) as caught:
        bench.run("raw")
    failure = find_failure(caught.value)
    assert (failure.error, failure.index, failure.where) == ("ValueError: truncated file", "51", "dataset")
    assert (failure.worker, failure.mode) == (None, modes.ALL)
    assert failure.traceback.count("ValueError: truncated file") == 1
    assert "load_image" in failure.traceback
    assert caught.value.__suppress_context__


def test_an_augmentation_that_raises_when_replayed_names_the_recorded_index(make):
    class Moody(NothingBehind):
        broken = False

        def augment(self, image):
            if self.broken:
                raise ValueError("moody")
            return super().augment(image)

    dataset = Moody()
    bench = make(dataset)
    bench.engine._user_code.dataset.broken = True
    with pytest.raises(UserCodeError) as caught:
        bench.run("before_augment")
    assert find_failure(caught.value).index == "0"


# --- left-overs of the mode before -------------------------------------------------------------------------


def test_blanks_that_arrive_after_a_switch_to_real_loading_do_no_harm(make):
    bench = make(Photos())
    for mode in (modes.ALL, modes.RECORD | modes.ALL):
        assert bench.ask(mode, Blank(2, 0)) is None
    assert bench.engine.report().batch_sizes == (2, 2)


@pytest.mark.parametrize("experiment", ["raw", "before_augment", "before_collate"])
@pytest.mark.parametrize("dataset", [Photos, Stream])
@pytest.mark.parametrize("batched", [True, False])
def test_what_was_asked_for_before_a_switch_is_not_made(make, monkeypatch, dataset, batched, experiment):
    # Guards: a batch for each place in the queue is made for real at each switch, and thrown away.
    bench = make(dataset(), batched=batched, collate_fn=list)
    mode = modes.MODE_OF_EXPERIMENT[experiment]
    if dataset is Stream:
        stale = Request([None] * 2, 0) if batched else Single(None, 0)
    else:
        indices = Request([7, 8], 0) if batched else Single(7, 0)
        stale = indices if experiment == "raw" else Blank(2, 0)
    monkeypatch.setattr(control, "arrived_generation", None)
    stale = pickle.loads(pickle.dumps(stale))  # as it comes out of a worker's queue
    bench.log.clear()
    bench.control.generation += 1
    assert bench.ask(mode, stale) is None
    assert bench.log == []
    fresh = pickle.loads(pickle.dumps(type(stale)(7 if isinstance(stale, Single) else [7, 8], 1)))
    fresh = pickle.loads(pickle.dumps(Blank(2, 1))) if isinstance(stale, Blank) else fresh
    assert bench.ask(mode, fresh) is not None
    assert RUN_COLLATE in bench.log


@pytest.mark.parametrize("experiment", ["raw", "before_augment"])
def test_a_batch_of_slow_samples_is_given_up_at_a_switch(make, experiment):
    # Guards: with samples of seconds, the batch that each worker is at is waited for, and thrown away.
    class Switching(NothingBehind):
        switch_at = None

        def augment(self, image):
            if self.switch_at is not None:
                bench.control.generation += 1
            return super().augment(image)

    dataset = Switching()
    bench = make(dataset, size=8)
    bench.engine._user_code.slow = True
    dataset = bench.engine._user_code.dataset
    dataset.switch_at = 0
    mode = modes.MODE_OF_EXPERIMENT[experiment]
    bench.log.clear()
    assert bench.ask(mode, Request(range(8), 0) if experiment == "raw" else Blank(8, 0)) is None
    assert bench.log.count(RUN_AUGMENT) == 1
    dataset.switch_at = None
    assert len(bench.ask(mode, Request(range(8), 1) if experiment == "raw" else Blank(8, 1))[1]) == 8


class Switching(Photos):
    """Each sample takes a given time, and from a moment on a switch comes with it."""

    def __init__(self, sample_s):
        super().__init__()
        self.sample_s, self.made, self.control = sample_s, 0, None

    def __len__(self):
        return 2048

    def __getitem__(self, index):
        self.made += 1
        self.now_s[0] += self.sample_s
        if self.control is not None:
            self.control.generation += 1
        return torch.full((2,), float(index)), index


def samples_made_after_a_switch(bench, size):
    dataset = bench.engine._user_code.dataset
    dataset.control, dataset.made = bench.control, 0
    bench.ask(modes.ALL, Request(range(size), 0))
    return dataset.made


@pytest.mark.parametrize(
    ("sample_s", "size", "gives_up"),
    [(6e-3, 16, True), (1e-3, 128, True), (4.4e-3, 128, True), (1e-4, 1024, False), (2e-3, 16, False)],
)
def test_slow_batches_are_given_up_at_a_switch_however_quick_their_samples(make, sample_s, size, gives_up):
    # Guards: photographs of 4 ms in batches of 128, and half a second for each switch.
    bench = make(Switching(sample_s), batches=1, size=size)
    assert samples_made_after_a_switch(bench, size) == (1 if gives_up else size)


def test_the_first_batch_already_says_whether_batches_are_slow(make):
    # Guards: a switch before anything is recorded, as from a running start, waits for a whole batch of each worker.
    bench = make(Switching(2e-3), batches=0, size=64)
    bench.engine._user_code.in_worker = True
    bench.ask(modes.ALL, Request(range(64), 0))
    assert samples_made_after_a_switch(bench, 64) == 1


def test_the_mode_is_read_once_a_batch(make):
    bench = make(Photos())
    bench.control.mode = modes.ALL
    samples = bench.engine.fetch([7, 8])
    bench.control.mode = modes.HANDOFF  # switched between fetching and collating
    assert bench.engine.collate(samples)[1].tolist() == [7, 8]


# --- the files that are opened in a worker -------------------------------------------------------------------

# An audit hook stays for ever, so that the real one is tried in a separate process.
IN_A_PROCESS = """
import os, pathlib, sys
from bottleneck.loader.engine import FileWatch
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


def test_readers_in_c_are_noted_by_their_python_functions(watch, monkeypatch):
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


# --- what the user's code raises --------------------------------------------------------------------------


class Leave(BaseException):
    """As some libraries derive theirs, so that no `except Exception` catches it."""


def source_that(error, worker=1):
    class Raising:
        def __getitem__(self, index):
            raise error

        def __iter__(self):
            raise error

    def collate(samples):
        raise error

    return UserCode(Raising(), collate, worker, batched=True)


CALLS = [
    lambda user_code: user_code.fetch([5]),
    lambda user_code: user_code.item(5),
    lambda user_code: user_code.next_item(),
    lambda user_code: user_code.collate([5]),
]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("error", [ValueError("bad"), SystemExit("bad"), Leave("bad"), KeyboardInterrupt("bad")])
def test_whatever_the_users_code_raises_in_a_worker_is_described(call, error):
    with pytest.raises(UserCodeError) as caught:
        call(source_that(error))
    failure = find_failure(caught.value)
    assert failure.error.endswith(f"{type(error).__name__}: bad")
    assert failure.worker == 1


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(("error", "worker"), [(KeyboardInterrupt(), None), (GivenUp(), 1), (GivenUp(), None)])
def test_an_interruption_in_the_main_process_and_the_end_of_a_replay_pass(call, error, worker):
    with pytest.raises(type(error)):
        call(source_that(error, worker))


def test_an_empty_stream_is_no_failure():
    with pytest.raises(NoShareError):
        UserCode([], list, 1, batched=True).next_item()


@pytest.mark.parametrize("text", ["", "some other error", "<bottleneck-failure> cut off", "</bottleneck-failure>"])
def test_other_exceptions_hold_no_failure(text):
    assert find_failure(RuntimeError(text)) is None


@pytest.mark.parametrize("message", ["ümlaut ✓", "two\nlines", '"quotes" \\ backslash', "</b> <c>", "x" * 5000])
def test_any_message_survives(message):
    with pytest.raises(UserCodeError) as caught:
        source_that(RuntimeError(message)).item(5)
    assert message in find_failure(caught.value).traceback
