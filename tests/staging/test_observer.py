"""What the pass of observation charges to which stage and to which transform, in invented time."""

import itertools
import math
import threading

import pytest
import torch
from torch.utils.data import Dataset, IterableDataset
from torchvision.transforms import v2

import bottleneck
from bottleneck.pipeline import marks
from bottleneck.pipeline.cuts import find_sites
from bottleneck.staging import observer, stages
from bottleneck.staging.control import Control
from bottleneck.staging.engine import Engine
from bottleneck.staging.failures import UserCodeError
from bottleneck.staging.observation import Clocks
from bottleneck.staging.observer import Observer
from bottleneck.staging.plan import make_plan

OBSERVE = stages.ALL & ~stages.HANDOFF | stages.OBSERVE
SIZE = 2


class Clock:
    """Invented time, of the wall and of the CPU; `ready_s` of the wall's passed without a core."""

    def __init__(self):
        self.wall_s, self.cpu_s, self.ready_s = 100.0, 7.0, 3.0

    def spin(self, seconds):
        self.wall_s += seconds
        self.cpu_s += seconds

    def sleep(self, seconds):
        self.wall_s += seconds

    def starve(self, seconds):
        self.wall_s += seconds
        self.ready_s += seconds


CLOCK = Clock()


class Work:
    """A transform that computes for a while and waits for a while."""

    def __init__(self, spin_s=0.0, sleep_s=0.0):
        self.spin_s, self.sleep_s = spin_s, sleep_s

    def __call__(self, image):
        CLOCK.spin(self.spin_s)
        CLOCK.sleep(self.sleep_s)
        return image + 1


class Flip(Work):
    pass


class Photos(Dataset):
    """Loading waits 3 s and computes 1 s; augmentation is given; what follows it takes `finish_s`."""

    finish_s = 0.0

    def __init__(self, transform=None):
        self.transform = transform or Work(spin_s=4.0)

    def __len__(self):
        return 1000

    def __getitem__(self, index):
        image = self.transform(self.load(index))
        CLOCK.spin(self.finish_s)
        return (image * 2 if self.finish_s else image), index

    def load(self, index):
        CLOCK.sleep(3.0)
        CLOCK.spin(1.0)
        return torch.full((1, 4, 4), float(index))


class Finishing(Photos):
    finish_s = 2.0


class Inline(Photos):
    """Loading that is in no function of its own, and code behind the augmentation."""

    def __getitem__(self, index):
        CLOCK.sleep(3.0)
        image = torch.full((1, 4, 4), float(index))
        image = self.transform(image)
        CLOCK.spin(2.0)
        return image * 2, index


class Opaque(Photos):
    def __init__(self):
        pass

    def __getitem__(self, index):
        CLOCK.spin(5.0)
        return torch.zeros(4), index


class Marked(Photos):
    def __getitem__(self, index):
        CLOCK.sleep(0.5)
        return self.decode(index), index

    @bottleneck.stage("decode")
    def decode(self, index):
        CLOCK.spin(1.0)
        return self.transform(self.read(index))

    @bottleneck.stage("read")
    def read(self, index):
        CLOCK.sleep(2.0)
        return torch.full((1, 4, 4), float(index))


class Batched(Photos):
    def __getitems__(self, indices):
        return [self[index] for index in indices]


class Stream(IterableDataset):
    def __init__(self):
        self.transform = Work(spin_s=4.0)

    def __iter__(self):
        for number in range(1000):
            CLOCK.sleep(3.0)
            yield self.transform(torch.full((4,), float(number)))


@bottleneck.stage("pad")
def pad(samples):
    CLOCK.spin(0.5)
    return samples


def collate(samples):
    CLOCK.spin(0.25)
    return torch.utils.data.default_collate(samples)


def collate_with_mark(samples):
    CLOCK.spin(0.25)
    return torch.utils.data.default_collate(pad(samples))


class Bench:
    """An engine that has recorded, and observes in invented time."""

    def __init__(self, dataset, collate_fn, batched):
        self.dataset, self.batched = dataset, batched
        self.control = Control(1)
        self.iterable = isinstance(dataset, IterableDataset)
        sites = find_sites(dataset)
        self.engine = Engine(
            dataset, collate_fn, self.control, sites, 10**6, seed=0, batched=batched, iterable=self.iterable
        )
        self.engine.start()
        self.engine._tape.clock = lambda: CLOCK.wall_s
        source = self.engine._source
        self.engine._observer = Observer(
            source, self.engine._tape, self.control, 0, self.engine._observer._roots,
            iterable=self.iterable,
            clocks=Clocks(lambda: CLOCK.wall_s, lambda: CLOCK.cpu_s, lambda: CLOCK.ready_s),
        )  # fmt: skip
        self.stream = self.engine.iterate() if self.iterable else None
        for number in range(3):
            self.make(stages.RECORD | stages.ALL, number * SIZE)
        self.plan = make_plan([self.engine.report()], iterable=self.iterable)
        self.control.publish_plan(self.plan)

    def make(self, mode, first=50):
        self.control.mode = mode
        if self.stream is not None:
            return self.engine.collate(list(itertools.islice(self.stream, SIZE)))
        request = list(range(first, first + SIZE)) if self.batched else first
        return self.engine.collate(self.engine.fetch(request))

    def observe(self, batches=1):
        for number in range(batches):
            assert self.make(OBSERVE, 50 + number * SIZE) is None  # nothing is handed over
        return self.seen()

    def seen(self):
        return self.control.read_observations().get(0)


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """Invented seconds are many."""
    monkeypatch.setattr(observer, "ENOUGH_S", math.inf)


@pytest.fixture
def make():
    benches = []

    def make_bench(dataset, collate_fn=collate, *, batched=True):
        benches.append(Bench(dataset, collate_fn, batched))
        return benches[-1]

    yield make_bench
    for bench in benches:
        bench.control.close()
        assert bench.engine._tape.handler is None
    assert marks.handler is None


def times(seen):
    """(wall, CPU) seconds of each stage, for a batch."""
    return {
        stage: (pytest.approx(spent.wall_s / seen.batches), pytest.approx(spent.cpu_s / seen.batches))
        for stage, spent in seen.stages.items()
    }


# --- stages ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "strategy", "expected"),
    [
        (Photos, "template", {"load": (8.0, 2.0), "augment": (8.0, 8.0)}),
        (Finishing, "replay", {"load": (8.0, 2.0), "augment": (8.0, 8.0), "finish": (4.0, 4.0)}),
        (Inline, "tail", {"load": (6.0, 0.0), "augment": (8.0, 8.0), "finish": (4.0, 4.0)}),
        (Opaque, "fetch", {"fetch": (10.0, 10.0)}),
        (Batched, "template", {"load": (8.0, 2.0), "augment": (8.0, 8.0)}),
        (Stream, "template", {"load": (6.0, 0.0), "augment": (8.0, 8.0)}),
    ],
)
def test_time_goes_to_the_stages_that_the_ladder_has(make, kind, strategy, expected):
    bench = make(kind())
    assert bench.plan.strategy == strategy
    seen = bench.observe(3)
    assert (seen.workers, seen.batches, seen.samples) == (1, 3, 3 * SIZE)
    assert times(seen) == expected | {"collate": (0.25, 0.25)}
    assert set(expected) == set(bench.plan.within_sample)


def test_marked_stages_are_charged_without_the_stages_inside_them(make):
    bench = make(Marked(), collate_with_mark)
    assert bench.plan.strategy == "marks"
    assert times(bench.observe(2)) == {
        "other": (1.0, 0.0), "decode": (10.0, 10.0), "read": (4.0, 0.0),
        "collate": (0.25, 0.25), "pad": (0.5, 0.5),
    }  # fmt: skip


def test_without_batching_an_item_is_a_batch(make):
    seen = make(Photos(), lambda sample: sample, batched=False).observe(2)
    assert (seen.batches, seen.samples) == (2, 2)
    assert times(seen) == {"load": (4.0, 1.0), "augment": (4.0, 4.0), "collate": (0.0, 0.0)}


def test_a_batch_of_a_stream_that_began_before_is_left_out(make):
    bench = make(Stream())
    bench.control.mode = stages.ALL
    first = next(bench.stream)
    bench.control.mode = OBSERVE
    second = next(bench.stream)
    bench.engine.collate([first, second])
    assert bench.seen() is None
    assert bench.observe().batches == 1


def test_a_batch_that_began_with_cached_items_is_left_out_and_the_next_one_counts(make):
    bench = make(Stream())
    bench.control.mode = stages.HANDOFF
    first = next(bench.stream)
    bench.control.mode = OBSERVE
    assert bench.engine.collate([first, next(bench.stream)]) is None
    assert bench.seen() is None
    assert bench.observe().samples == SIZE


@pytest.mark.parametrize("kind", [Photos, Stream])
def test_a_worker_that_has_seen_enough_works_no_more(make, monkeypatch, kind):
    monkeypatch.setattr(observer, "ENOUGH_S", 20.0)
    assert make(kind()).observe(5).batches == 2  # each takes 14 s or more


def test_time_without_a_core_is_told_apart_from_waiting(make):
    class Starved(Photos):
        def load(self, index):
            CLOCK.starve(0.5)
            return super().load(index)

    bench = make(Starved())
    assert bench.observe(2).core_wait_s == pytest.approx(4 * 0.5)


def test_where_the_system_does_not_tell_of_cores_nothing_is_said(make):
    bench = make(Photos())
    bench.engine._observer._clocks = Clocks(lambda: 0.0, lambda: 0.0, lambda: None)
    assert bench.observe(2).core_wait_s is None


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
    assert bench.plan.strategy == "fetch"
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
