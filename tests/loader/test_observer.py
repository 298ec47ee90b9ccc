"""The time that the observing pass charges to each stage and transform, in invented time."""

import gc
import io
import sys
import threading
import zlib

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import v2

from bottleneck.loader import modes
from bottleneck.loader.observing import garbage
from bottleneck.loader.observing import observe as observe_module
from bottleneck.loader.observing.images import PixelNotes, image_pixels
from bottleneck.loader.observing.observe import runner, stage_of_frame
from bottleneck.loader.user_code import UserCodeError
from tests.loader.observer_bench import (
    CLOCK,
    OBSERVE,
    SIZE,
    Flip,
    Marked,
    Opaque,
    Photos,
    Stream,
    Work,
    benches,
    collate,
    collate_with_mark,
    observe,
    patience,
    times,
)

make = pytest.fixture(benches)
patient = pytest.fixture(autouse=True)(patience)


# --- stages ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "strategy", "expected"),
    [
        (Photos, "template", {"load": (8.0, 2.0), "augment": (8.0, 8.0)}),
        (Opaque, "fetch", {"fetch": (10.0, 10.0)}),
        (Stream, "template", {"load": (6.0, 0.0), "augment": (8.0, 8.0)}),
    ],
)
def test_time_goes_to_the_stages_that_the_ladder_has(make, kind, strategy, expected):
    bench = make(kind())
    assert bench.plan.strategy == strategy
    seen = observe(bench, 3)
    assert (seen.workers, seen.batches, seen.samples) == (1, 3, 3 * SIZE)
    assert times(seen) == expected | {"collate": (0.25, 0.25)}
    assert set(expected) == set(bench.plan.within_sample)


def test_marked_stages_are_charged_without_the_stages_inside_them(make):
    bench = make(Marked(), collate_with_mark)
    assert bench.plan.strategy == "marks"
    assert times(observe(bench, 2)) == {
        "other": (1.0, 0.0), "decode": (10.0, 10.0), "read": (4.0, 0.0),
        "collate": (0.25, 0.25), "pad": (0.5, 0.5),
    }  # fmt: skip


def test_a_batch_that_began_with_cached_items_is_left_out_and_the_next_one_counts(make):
    bench = make(Stream())
    bench.control.mode = modes.HANDOFF
    first = next(bench.stream)
    bench.control.mode = OBSERVE
    assert bench.engine.collate([first, next(bench.stream)]) is None
    assert bench.control.observations.by_worker().get(0) is None
    assert observe(bench).samples == SIZE


@pytest.mark.parametrize("kind", [Photos, Stream])
def test_a_worker_that_has_seen_enough_works_no_more(make, monkeypatch, kind):
    monkeypatch.setattr(observe_module, "ENOUGH_S", 20.0)
    monkeypatch.setattr(sys, "getallocatedblocks", lambda: 0)  # whatever else these tests have imported
    assert observe(make(kind()), 5).batches == 2  # each takes 14 s or more


def test_time_without_a_core_is_told_apart_from_waiting(make):
    class Starved(Photos):
        def load(self, index):
            CLOCK.starve(0.5)
            return super().load(index)

    bench = make(Starved())
    assert observe(bench, 2).core_wait_s == pytest.approx(4 * 0.5)


# --- the data of samples -----------------------------------------------------------------------------------


class Few(Photos):
    """Repeats three pictures."""

    def load(self, index):
        return torch.full((1, 4, 4), float(index % 3))


class Late(Photos):
    """Opens pictures, which are read when they are used."""

    def __init__(self):
        self.transform = v2.PILToTensor()

    def load(self, index):
        file = io.BytesIO()
        Image.new("L", (4, 4), index % 3).save(file, "png")
        return Image.open(file)


@pytest.mark.parametrize(("kind", "stage", "nbytes"), [(Few, "load", 64), (Opaque, "", None), (Late, "", None)])
def test_samples_are_compared_by_what_they_are_made_of_or_else_as_they_are(make, kind, stage, nbytes):
    found = observe(make(kind()), 3).outputs
    assert {one.stage for one in found} == {stage}
    assert len({one.index for one in found}) == len(found) == 3 * SIZE
    assert nbytes is None or {one.nbytes for one in found} == {nbytes}
    assert len({one.checksum for one in found}) == (3 if kind is Few else len(found))


class Files(Photos):
    """Each file of pixels comes with one that is the same for many, and is augmented in the code of the sample."""

    def __init__(self, pictures):
        self.pictures = pictures

    def __getitem__(self, index):
        return self.read(f"class-{index % 2}")[0] + self.read(f"picture-{index % self.pictures}") + torch.rand(1), index

    def read(self, path):
        return torch.full((4,), float(zlib.crc32(path.encode())), dtype=torch.float64)


@pytest.mark.parametrize(("pictures", "different"), [(3, 6), (1000, 12)])
def test_a_sample_of_several_files_is_compared_by_all_of_them(make, pictures, different):
    found = observe(make(Files(pictures)), 6).outputs
    assert {(one.stage, one.nbytes) for one in found} == {("load", 64)}
    assert len(found) == 12
    assert len({one.checksum for one in found}) == different


def test_samples_of_a_stream_are_not_compared(make):
    assert observe(make(Stream()), 2).outputs == []


# --- single transforms -------------------------------------------------------------------------------------


def rows(seen):
    """Path -> (stage, name, calls, wall, CPU, outputs), for all samples."""
    return {
        place: (stage, found.name, found.calls, found.wall_s, found.cpu_s, dict(found.outputs))
        for (stage, place), found in seen.transforms.items()
    }


def test_each_member_of_a_composition_has_its_calls_times_and_outputs(make):
    inner = v2.RandomApply([Flip(spin_s=1.0)], p=1.0)
    transform = v2.Compose([Work(spin_s=2.0), inner, torch.nn.Sequential(v2.Resize(2), v2.Identity()), Work(0.5, 0.25)])
    bench = make(Photos(transform))
    seen = observe(bench, 2)
    large, small = {"1x4x4 float32": 4}, {"1x2x2 float32": 4}
    assert rows(seen) == {
        "transform.transforms[0]": ("augment", "Work", 4, 8.0, 8.0, large),
        "transform.transforms[1].transforms[0]": ("augment", "Flip", 4, 4.0, 4.0, large),
        "transform.transforms[2][0]": ("augment", "Resize", 4, 0.0, 0.0, small),
        "transform.transforms[2][1]": ("augment", "Identity", 4, 0.0, 0.0, small),
        "transform.transforms[3]": ("augment", "Work", 4, 3.0, 2.0, small),
    }
    assert sum(found.wall_s for found in seen.transforms.values()) == seen.stages["augment"].wall_s
    assert [found.order for found in seen.transforms.values()] == [0, 1, 2, 3, 4]


def test_looking_at_what_a_transform_gives_is_charged_to_nobody(make):
    class Slow(dict):
        def items(self):
            CLOCK.spin(1000.0)
            return super().items()

    class Wrap(Work):
        def __call__(self, image):
            return Slow(image=super().__call__(image))

    transform = v2.Compose([Wrap(spin_s=4.0), lambda found: dict.__getitem__(found, "image")])
    seen = observe(make(Photos(transform)), 1)
    assert times(seen)["augment"] == (8.0, 8.0)
    assert rows(seen)["transform.transforms[0]"][3:5] == (8.0, 8.0)


def test_transforms_of_a_collate_function_belong_to_collation(make):
    class Mixing:
        def __init__(self):
            self.mix = v2.RandomChoice([Work(spin_s=4.0)])

        def __call__(self, samples):
            return self.mix(torch.stack([image for image, _ in samples]))

    seen = observe(make(Photos(), Mixing()), 1)
    assert rows(seen)["collate_fn.mix.transforms[0]"] == ("collate", "Work", 1, 4.0, 4.0, {"2x1x4x4 float32": 1})
    assert times(seen)["collate"] == (4.0, 4.0)


def test_a_transform_that_is_not_composed_has_a_row_of_its_own(make):
    assert rows(observe(make(Photos()), 1)) == {
        "transform": ("augment", "Work", 2, 8.0, 8.0, {"1x4x4 float32": 2})
    }  # fmt: skip


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # of recording, not of this
def test_transforms_in_threads_of_the_users_are_told_of_and_not_timed(make):
    class InThread(Photos):
        def __getitem__(self, index):
            found = []
            thread = threading.Thread(target=lambda: found.append(self.transform(torch.zeros(1))))
            thread.start()
            thread.join()
            return found[0], index

    seen = observe(make(InThread(v2.Compose([Work(spin_s=4.0)]))), 1)
    assert seen.transforms == {}
    assert seen.elsewhere == {"transform.transforms[0]"}


def test_a_transform_that_raises_is_a_failure_and_leaves_no_timer_or_thread_behind(make):
    class Breaks(Work):
        broken = False

        def __call__(self, image):
            if self.broken:
                raise ValueError("out of range")
            return image

    breaking = Breaks()
    transform = v2.Compose([breaking, Flip()])
    bench = make(Photos(transform))
    breaking.broken = True
    with pytest.raises(UserCodeError, match="out of range"):
        observe(bench)
    assert not any(thread.name == "bottleneck-lines" for thread in threading.enumerate())
    assert transform.transforms[0] is breaking
    assert type(transform.transforms[1]) is Flip
    breaking.broken = False
    assert observe(bench).batches == 1


@pytest.mark.parametrize(
    ("leaf", "pixels"),
    [
        (Image.new("RGB", (20, 10)), 200),
        (torch.zeros(3, 10, 20), 200),
        (np.zeros((10, 20, 3)), 200),
        (torch.zeros(1, 10, 20), 200),
        (torch.zeros(8, 3, 10, 20), 1600),
        (np.zeros((10, 20), np.uint8), 200),
        (torch.zeros(10, 20), None),
        (torch.zeros(10, dtype=torch.uint8), None),
        (torch.zeros(5, 7, 9), None),
        ("text", None),
        (7, None),
    ],
)
def test_what_counts_as_an_image(leaf, pixels):
    assert image_pixels(leaf) == pixels


def seen(notes, value, samples=1):
    return notes.end(value, samples)


def test_what_goes_into_the_augmentation_against_what_comes_out_of_the_dataset():
    notes = PixelNotes()
    notes.begin()
    notes.see_loaded((Image.new("RGB", (40, 20)),), {})
    notes.see_transformed((Image.new("RGB", (10, 10)),), {})
    found = seen(notes, (torch.zeros(3, 5, 8), 1))
    assert (found.samples, found.decoded, found.used) == (1, 800, 40)
    assert (found.loaded_samples, found.loaded_bytes) == (1, 40 * 20 * 4)


# --- collections of garbage ----------------------------------------------------------------------------------


class Littering(Photos):
    """Lets Python collect garbage while it loads, of all objects once a sample."""

    def load(self, index):
        gc.collect(0)
        gc.collect()
        return super().load(index)


def test_collections_are_noted_while_batches_are_observed(make):
    before = list(gc.callbacks)
    bench = make(Littering())
    seen = observe(bench, 2).collections
    assert gc.callbacks == before
    assert seen.count == 2 * SIZE
    assert 0 < seen.shortest_s < 10
    assert seen.objects > 0
    assert not seen.missing


def test_a_heap_without_a_collection_is_observed_for_longer(make, monkeypatch):
    monkeypatch.setattr(observe_module, "ENOUGH_S", 20.0)
    monkeypatch.setattr(garbage, "_MANY_BLOCKS", 0)
    assert observe(make(Photos()), 4).batches == 4  # 16 s each: with enough, the third would be left out
    assert observe(make(Littering()), 4).batches == 2


# --- frames that are named after stages ----------------------------------------------------------------------


def stages_around():
    """The stages whose frames are around the caller, outermost first."""
    frame, stages = sys._getframe(1), []
    while frame is not None:
        stages.insert(0, stage_of_frame(frame.f_code.co_name, frame.f_code.co_filename))
        frame = frame.f_back
    return tuple(filter(None, stages))


class Looking(Work):
    seen = ()

    def __call__(self, image):
        self.seen = stages_around()
        return super().__call__(image)


@pytest.mark.parametrize(
    ("kind", "around"), [(Photos, ("load", "augment")), (Marked, ("other", "decode")), (Opaque, ())]
)
def test_each_stage_runs_under_a_frame_of_its_own(make, kind, around):
    def looking(samples):
        collating.append(stages_around())
        return collate(samples)

    collating, transform = [], Looking()
    bench = make(kind() if kind is Opaque else kind(transform), looking)
    batch = bench.run(modes.ALL | modes.NAME_FRAMES)[0]
    assert batch[1].tolist() == [50, 51]
    assert transform.seen == around
    assert collating[-1] == ("collate",)


def test_a_failure_under_a_frame_is_told_and_the_handlers_are_taken_away(make):
    class Breaks(Photos):
        def load(self, index):
            if index >= 50:
                raise ValueError("out of range")
            return super().load(index)

    with pytest.raises(UserCodeError, match="out of range"):
        make(Breaks()).run(modes.ALL | modes.NAME_FRAMES)  # `make` looks at the handlers


@pytest.mark.parametrize("stage", ["load", "a b", "50 %; (x)", "stage:load", "äöü"])
def test_any_name_of_a_stage_can_be_read_back(stage):
    def look():
        code = sys._getframe(1).f_code
        return code.co_name, code.co_filename

    name, file = runner(stage)(look, (), {})
    assert ";" not in name
    assert " " not in name
    assert stage_of_frame(name, file) == stage


def test_a_function_of_the_users_with_such_a_name_is_no_stage():
    assert stage_of_frame("stage:load", "/jobs/data.py") is None
    assert stage_of_frame("load", "/jobs/data.py") is None
