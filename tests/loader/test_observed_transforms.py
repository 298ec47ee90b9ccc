"""What the pass of observation charges to which transform, in invented time."""

import threading

import pytest
import torch
from torchvision.transforms import v2

from bottleneck.loader.plan import Plan
from bottleneck.loader.user_code import UserCodeError
from tests.loader.observer_bench import CLOCK, Flip, Marked, Photos, Work, benches, patience, times

make = pytest.fixture(benches)
patient = pytest.fixture(autouse=True)(patience)


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
    seen = bench.observe(2)
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

    seen = make(Photos(v2.Compose([Wrap(spin_s=4.0), lambda found: dict.__getitem__(found, "image")]))).observe(1)
    assert times(seen)["augment"] == (8.0, 8.0)
    assert rows(seen)["transform.transforms[0]"][3:5] == (8.0, 8.0)


def test_transforms_that_are_seldom_called_are_counted_as_often_as_they_are(make):
    torch.manual_seed(1)
    transform = v2.Compose([v2.RandomChoice([Work(spin_s=1.0), Flip(spin_s=1.0)], p=[0.5, 0.5])])
    seen = make(Photos(transform)).observe(20)
    calls = {found.name: found.calls for found in seen.transforms.values()}
    assert calls["Work"] + calls["Flip"] == 40
    assert min(calls.values()) > 5


def test_transforms_of_a_collate_function_belong_to_collation(make):
    class Mixing:
        def __init__(self):
            self.mix = v2.RandomChoice([Work(spin_s=4.0)])

        def __call__(self, samples):
            return self.mix(torch.stack([image for image, _ in samples]))

    seen = make(Photos(), Mixing()).observe(1)
    assert rows(seen)["collate_fn.mix.transforms[0]"] == ("collate", "Work", 1, 4.0, 4.0, {"2x1x4x4 float32": 1})
    assert times(seen)["collate"] == (4.0, 4.0)


def test_transforms_inside_marked_stages_belong_to_them(make):
    dataset = Marked(v2.Compose([Work(spin_s=4.0)]))
    seen = make(dataset).observe(1)
    assert rows(seen) == {"transform.transforms[0]": ("decode", "Work", 2, 8.0, 8.0, {"1x4x4 float32": 2})}


def test_transforms_are_found_where_nothing_can_be_cut(make):
    class Generated(Photos):
        def __getitem__(self, index):
            CLOCK.spin(1.0)
            image = self.transform(torch.zeros(1, 4, 4))
            CLOCK.spin(1.0)
            return self.transform(image), index

    bench = make(Generated(v2.Compose([Work(spin_s=3.0)])))
    bench.control.publish_plan(Plan("fetch"))
    seen = bench.observe(1)
    assert rows(seen) == {"transform.transforms[0]": ("fetch", "Work", 4, 12.0, 12.0, {"1x4x4 float32": 4})}
    assert times(seen)["fetch"] == (16.0, 16.0)


def test_a_transform_that_is_not_composed_has_a_row_of_its_own(make):
    assert rows(make(Photos()).observe(1)) == {
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

    seen = make(InThread(v2.Compose([Work(spin_s=4.0)]))).observe(1)
    assert seen.transforms == {}
    assert seen.elsewhere == {"transform.transforms[0]"}


def test_every_timer_is_taken_away_after_each_batch(make):
    transform = v2.Compose([Work(), torch.nn.Sequential(v2.Identity())])
    before = [*transform.transforms, transform.transforms[1][0]]
    make(Photos(transform)).observe(2)
    assert [type(part) for part in before] == [Work, torch.nn.Sequential, v2.Identity]
    assert all(a is b for a, b in zip([*transform.transforms, transform.transforms[1][0]], before, strict=True))


def test_a_transform_that_raises_is_a_failure_and_leaves_no_timer_behind(make):
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
        bench.observe()
    assert transform.transforms[0] is breaking
    assert type(transform.transforms[1]) is Flip
    breaking.broken = False
    assert bench.observe().batches == 1
