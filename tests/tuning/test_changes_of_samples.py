"""Samples kept in memory, and other transforms: the same samples, or refused with the reason."""

import pickle
import random
from multiprocessing.reduction import ForkingPickler

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, Subset
from torchvision import transforms
from torchvision.transforms import v2

from bottleneck.loader import trees
from bottleneck.loader.trees import as_it_is
from bottleneck.tuner.change import build
from bottleneck.tuner.changes.samples import InMemory, prepare
from tests.test_left_as_found import same
from tests.tuning.jobs import BY_NAME, Stream, here, table_job

RANDOM = transforms.Compose([transforms.RandomCrop(8), transforms.ToTensor()])
FLIPS = transforms.Compose([transforms.RandomHorizontalFlip(), transforms.ToTensor()])
"""Draws a number each time, and often leaves the picture unchanged."""
NORMALIZE = transforms.Normalize((0.5,) * 3, (0.2,) * 3)
FIXED = transforms.Compose([transforms.ToTensor()])


class Photos(Dataset):
    """Pictures of noise, each made from its index; other ones show other ways to give a sample."""

    def __init__(self, transform=RANDOM, length=12):
        self.transform, self.length, self.loads, self.calls = transform, length, [], 0

    def __len__(self):
        return self.length

    def load(self, index):
        return Image.fromarray(np.random.default_rng(index).integers(0, 256, (16, 16, 3), dtype=np.uint8))

    def __getitem__(self, index):
        return self.transform(self.load(index)), index


class Named(Photos):
    def __getitem__(self, index):
        return {"label": index, "image": self.transform(self.load(index))}


class Bare(Photos):
    def __getitem__(self, index):
        return self.transform(self.load(index))


class Mixing(Photos):
    def load(self, index):
        return Image.blend(super().load(index), super().load(random.randrange(len(self))), 0.5)


class Counting(Photos):
    def __getitem__(self, index):
        self.calls += 1
        return super().__getitem__(index)


class Caching(Photos):
    def load(self, index):
        self.loads.append(index)
        return super().load(index)


class TwoViews(Photos):
    def __getitem__(self, index):
        return self.transform(self.load(index)), self.transform(self.load(index))


class Scaling(Photos):
    def __getitem__(self, index):
        return self.transform(self.load(index)) / 2, index


class Drawing(Photos):
    def __getitem__(self, index):
        return self.transform(self.load(index)), torch.rand(())


class Scheduled(Photos):
    def set_epoch(self, epoch):
        self.calls = epoch


class Wanting(Photos):
    """Draws before its transform, and drops what it has drawn."""

    def load(self, index):
        torch.rand(())
        return super().load(index)


class Seldom(Photos):
    """Mixes another picture in, now and then."""

    def load(self, index):
        image = super().load(index)
        return Image.blend(image, super().load(0), 0.5) if np.random.rand() < 0.3 else image


class Noisy(Photos):
    def __getitem__(self, index):
        image = self.transform(self.load(index))
        return (image.add_(0.1) if np.random.rand() < 0.3 else image), index


def job(dataset, **fields):
    return table_job(dataset, **{"shuffle": True, **fields})


def seeded(dataset, index):
    torch.manual_seed(index)
    return dataset[index]


@pytest.mark.parametrize("kind", [Photos, Named, Bare])
@pytest.mark.parametrize(("transform", "kept"), [(RANDOM, "inputs"), (FLIPS, "inputs"), (FIXED, "samples")])
@pytest.mark.parametrize("within", [lambda dataset: dataset, lambda dataset: Subset(dataset, range(3, 12))])
def test_samples_from_memory_are_the_same_with_the_same_random_numbers(kind, transform, kept, within):
    given = within(kind(transform))
    change, place = BY_NAME["in_memory"], here(job(given))
    before = torch.get_rng_state(), random.getstate()
    assert change.why_not(place) is None
    setting = change.propose(place, {})
    assert setting.label == f"in_memory={kept}"
    changed = build(place.pipeline, (setting,)).dataset
    prepare(changed)
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == random.getstate()
    for index in [*range(len(given)), 0]:  # once more, after a transform in place might have changed it
        assert same(seeded(changed, index), seeded(given, index))
    assert "already" in change.why_not(here(job(changed)))


@pytest.mark.parametrize(
    ("dataset", "said"),
    [
        (Mixing(), "mixes others"),
        (Drawing(), "mixes others"),
        (Counting(), "keeps state"),
        (Caching(), None),
        (TwoViews(), "calls once"),
        (Scaling(), "calls once"),
        (Scheduled(), "set_epoch"),
        (Wanting(), "drawn outside"),
        (Seldom(), "drawn outside"),
        (Noisy(), "drawn outside"),
        (Photos(transform=None), "calls once"),
        (Stream(), "stream"),
    ],
)
def test_what_would_not_give_the_same_samples_is_refused(dataset, said):
    fields = {} if isinstance(dataset, Stream) else {"shuffle": True}
    assert (said or "keeps state") in BY_NAME["in_memory"].why_not(here(table_job(dataset, **fields)))


class Opening(Photos):
    """Opens what it reads from at its first sample."""

    file = None

    def load(self, index):
        self.file = self.file or object()
        self.files.setdefault("pictures", self.file)
        return super().load(index)


@pytest.mark.parametrize("name", ["in_memory", "crop_first", "whole_batches", "uint8_images", "v2_tensors"])
def test_what_is_opened_for_a_check_is_no_part_of_the_dataset_with_which_workers_are_forked(name):
    steps = [transforms.RandomHorizontalFlip(), transforms.CenterCrop(8), transforms.ToTensor(), NORMALIZE]
    given = Opening(transforms.Compose(steps))
    given.files = {}
    assert (BY_NAME[name].why_not(here(job(given))) is None) == (name != "whole_batches")
    BY_NAME[name].propose(here(job(given)), {})
    prepare(InMemory(given, whole=True))
    assert (given.file, given.files) == (None, {})


def test_what_does_not_fit_into_memory_is_not_kept(monkeypatch):
    monkeypatch.setattr("bottleneck.tuner.changes.samples.rank_memory_bytes", lambda: 200_000)
    assert "but 195 KiB are free" in BY_NAME["in_memory"].why_not(here(job(Photos(length=10**6))))
    monkeypatch.setattr(Photos, "load", lambda self, index: torch.zeros(1000, 3, 20, 20)[index])  # parts of a whole
    assert BY_NAME["in_memory"].why_not(here(job(Photos(transforms.RandomHorizontalFlip())))) is None


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.integration)])
def test_a_few_samples_stand_for_all_of_a_large_dataset(workers, monkeypatch):
    monkeypatch.setattr("bottleneck.tuner.changes.samples._MAX_KEPT", 8)
    memory = InMemory(Photos(length=10**5), whole=False)
    prepare(memory)
    labels = [int(label) for _, label in (memory[index] for index in range(0, 10**5, 777))]
    assert set(labels) == {at * 10**5 // 8 for at in range(8)}
    batches = list(DataLoader(Subset(memory, range(64)), batch_size=16, shuffle=True, num_workers=workers))
    assert len({image.numpy().tobytes() for images, _ in batches for image in images}) > 8  # each cropped separately


class Item:
    """A sample of a library's own type."""

    def __init__(self, values):
        self.values = values


class Views(Photos):
    """Samples that are views of one storage, as those of a graph dataset in memory."""

    everything = torch.arange(120_000.0).reshape(12, 10_000)

    def load(self, index):
        return Item(self.everything[index, :100])


class InPlace:
    def __call__(self, item):
        item.values *= 2
        return item


@pytest.mark.parametrize("transform", [as_it_is, InPlace()])
@pytest.mark.parametrize("whole", [True, False])
def test_an_object_from_memory_is_small_and_never_changed_by_whoever_gets_it(transform, whole, monkeypatch):
    monkeypatch.setattr(Views, "everything", Views.everything.clone())
    given = Views(transform)
    memory = InMemory(given, whole=whole)
    prepare(memory)
    expected = memory[3][0].values.clone()
    for item, _ in (memory[3], memory[3]):
        assert torch.equal(item.values, expected)
        assert item.values.untyped_storage().nbytes() == 400
        item.values.zero_()
    assert trees.nbytes(memory.kept) < 12 * 2000


def test_what_is_in_memory_goes_to_a_spawned_worker_without_a_descriptor_for_each_tensor():
    memory = InMemory(Views(as_it_is), whole=True)
    prepare(memory)
    sent = pickle.loads(ForkingPickler.dumps(memory))
    assert trees.equal(sent[5], memory[5])
    assert not any(item.values.is_shared() for item, _ in memory.kept)


def test_images_and_arrays_that_are_read_only_when_used_are_read_once(tmp_path):
    picture, array = Photos().load(0), np.arange(12.0).reshape(3, 4)
    picture.save(tmp_path / "picture.png")
    np.save(tmp_path / "array.npy", array)

    class Lazy(Photos):
        def load(self, index):
            return Image.open(tmp_path / "picture.png"), np.load(tmp_path / "array.npy", mmap_mode="r")

    memory = InMemory(Lazy(as_it_is), whole=True)
    prepare(memory)
    for path in tmp_path.iterdir():
        path.unlink()
    (image, values), _ = memory[4]
    assert not trees.is_lazy_image(image)
    assert not trees.is_mapped(values)
    assert image.tobytes() == picture.tobytes()
    assert values.tolist() == array.tolist()


# --- the crop first -----------------------------------------------------------------------------------------


class Large(Photos):
    def load(self, index):
        noise = np.random.default_rng(index).integers(0, 56, (40, 48, 3), dtype=np.uint8)
        return Image.fromarray(noise + np.linspace(0, 199, 48, dtype=np.uint8)[None, :, None])


@pytest.mark.parametrize(
    ("steps", "order"),
    [
        ([transforms.ToTensor(), NORMALIZE, transforms.RandomCrop(8)], "RandomCrop, ToTensor, Normalize"),
        (
            [transforms.RandomHorizontalFlip(p=1.0), transforms.CenterCrop(8), transforms.ToTensor()],
            "CenterCrop, RandomHorizontalFlip",
        ),
        (
            [transforms.ColorJitter(brightness=0.4), transforms.RandomCrop(8), transforms.ToTensor()],
            "RandomCrop, ColorJitter",
        ),
        ([v2.PILToTensor(), v2.ToDtype(torch.float32), v2.CenterCrop(8)], "CenterCrop, PILToTensor, ToDtype"),
    ],
)
def test_the_crop_comes_first_where_samples_stay_the_same(steps, order):
    given = Large(transforms.Compose(steps))
    change, place = BY_NAME["crop_first"], here(job(given))
    assert change.why_not(place) is None
    setting = change.propose(place, {})
    assert (", ".join(setting.value.names), setting.label) == (order, f"crop_first={order.partition(',')[0]}")
    changed = build(place.pipeline, (setting,)).dataset
    assert [type(step).__name__ for step in changed.transform.transforms] != [type(s).__name__ for s in steps]
    assert [image.shape for image, _ in map(changed.__getitem__, range(3))] == [(3, 8, 8)] * 3
    assert given.transform.transforms == steps
    assert change.propose(here(job(changed)), {}) is None
    prepare(memory := InMemory(changed, whole=False))
    assert seeded(memory, 1)[0].shape == (3, 8, 8)


@pytest.mark.parametrize(
    ("transform", "said"),
    [
        (transforms.ToTensor(), "no `transform`"),
        (transforms.Compose([transforms.RandomCrop(8), transforms.ToTensor()]), "no transform works on pixels"),
        (
            transforms.Compose(
                [transforms.ColorJitter(contrast=(2, 2)), transforms.CenterCrop(8), transforms.ToTensor()]
            ),
            "would not give the same",  # contrast is about the mean of the picture
        ),
        (
            transforms.Compose([transforms.RandomGrayscale(), transforms.RandomRotation(30), transforms.CenterCrop(8)]),
            "would not give the same",
        ),
    ],
)
def test_what_a_crop_would_change_stays_before_it(transform, said):
    assert said in BY_NAME["crop_first"].why_not(here(job(Large(transform))))


# --- tensors of bytes ---------------------------------------------------------------------------------------

JITTER = [transforms.RandomApply([transforms.ColorJitter(0.4, 0.4, 0.4, 0.1)], p=0.5), transforms.RandomGrayscale()]
ENDS = [transforms.ToTensor(), NORMALIZE]


class Blended(Large):
    """Mixes samples at random, after the transform."""

    def __getitem__(self, index):
        image, _ = super().__getitem__(index)
        other, _ = super().__getitem__(int(torch.randint(len(self), ())))
        return torch.lerp(image, other, float(torch.rand(()))), index


@pytest.mark.parametrize("kind", [Large, Blended])
@pytest.mark.parametrize(
    ("steps", "names"),
    [
        ([transforms.RandomResizedCrop(8), FLIPS.transforms[0], *ENDS], "RandomResizedCrop RandomHorizontalFlip"),
        ([*JITTER, *ENDS, transforms.RandomErasing()], "RandomApply RandomGrayscale"),
        ([v2.RandomCrop(8, padding=2), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)], "RandomCrop"),
        (
            [transforms.Compose([transforms.Resize((9, 7))]), transforms.PILToTensor(), v2.ToDtype(torch.float32)],
            "Compose",
        ),
    ],
)
def test_version_2_makes_nearly_the_same_of_tensors_of_bytes(kind, steps, names):
    given = Subset(kind(transforms.Compose(steps)), range(1, 12))
    change, place = BY_NAME["v2_tensors"], here(job(given))
    assert change.why_not(place) is None
    changed = build(place.pipeline, (change.propose(place, {}),)).dataset
    assert given.dataset.transform.transforms == steps
    first, *others = changed.dataset.transform.transforms
    assert isinstance(first, (v2.PILToTensor, v2.ToImage, transforms.PILToTensor))
    assert [type(step).__name__ for step in others][: len(names.split())] == names.split()
    assert all(isinstance(step, v2.Transform) for step in others[: len(names.split())])
    for index in range(11):
        (image, label), (other, as_given) = (seeded(dataset, index) for dataset in (given, changed))
        assert (type(image), image.dtype, image.shape, label) == (type(other), other.dtype, other.shape, as_given)
        assert (image - other).abs().mean() < 0.02 * (image.max() - image.min())
    assert change.why_not(here(job(changed))).startswith("no transforms")


class Blur(transforms.GaussianBlur):
    __module__ = "users"


@pytest.mark.parametrize(
    ("dataset", "said"),
    [
        (Large(transforms.Compose([transforms.RandAugment(), *ENDS])), "other samples"),  # draws other numbers
        (Large(transforms.Compose([transforms.RandomResizedCrop(8, interpolation=0), *ENDS])), "other samples"),
        (Large(transforms.Compose([transforms.RandomApply([Blur(3)]), *ENDS])), "no transforms"),
        (Large(transforms.Compose([transforms.Lambda(lambda image: image), *ENDS])), "no transforms"),
        (Large(transforms.Compose(ENDS)), "no transforms"),
        (Large(transforms.RandomCrop(8)), "no transforms"),
        (Stream(), "stream"),
    ],
)
def test_what_version_2_would_not_make_stays_with_pillow(dataset, said):
    fields = {} if isinstance(dataset, Stream) else {"shuffle": True}
    assert said in BY_NAME["v2_tensors"].why_not(here(table_job(dataset, **fields)))
