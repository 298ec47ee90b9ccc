"""Which changes there are, where they apply, and what they make of a job."""

import copy

import pytest
import torch
from PIL import Image
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils.data import IterableDataset, TensorDataset
from torchvision import transforms
from torchvision.transforms import v2

from bottleneck.errors import UsageError
from bottleneck.job.checks import check
from bottleneck.job.pipeline import Pipeline
from bottleneck.job.step import make_train_step, make_transfer
from bottleneck.tuning.change import Change, Context, Setting, build
from bottleneck.tuning.changes import BUILT_IN, choose
from tests.tuning.old_torch import NEEDS_IN_ORDER, where_there

CPU = torch.device("cpu")
BY_NAME = {change.name: change for change in BUILT_IN}


class Pictures:
    """Pictures of noise, with a transform where torchvision's datasets have it."""

    def __init__(self, transform):
        self.transform = transform

    def __len__(self):
        return 64

    def __getitem__(self, index):
        pixels = torch.randint(0, 256, (16, 16, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(index))
        return self.transform(Image.fromarray(pixels.numpy())), index % 4


class Doubling(Pictures):
    def __getitem__(self, index):
        return 2 * super().__getitem__(index)[0]


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))


def pictures_job(transform=None, **fields):
    model = network()
    normalized = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.4, 0.5, 0.6), (0.2, 0.3, 0.2))])
    given = {"dataset": Pictures(transform or normalized), "model": model, "loss_fn": nn.CrossEntropyLoss()}
    optimizer = torch.optim.Adam(model.parameters())
    return Pipeline(**{**given, "optimizer": optimizer, "batch_size": 4, "device": "cpu", **fields})


def here(pipeline, **fields):
    return Context(pipeline, pipeline, pipeline.make_loader(), CPU, **{"cores": 8, **fields})


def loss_of(pipeline):
    batch = next(iter(pipeline.replace(num_workers=0).make_loader()))
    loss = make_train_step(pipeline)(make_transfer(pipeline, CPU, False)(batch))
    return float(loss.detach())


HERE = (
    "num_workers", "prefetch_factor", "in_order", "persistent_workers", "worker_threads", "uint8_images", "autocast",
    "batch_size", "channels_last", "fused_optimizer",
)  # fmt: skip
"""What applies to a job with pictures on a CPU; the others have tests of their own."""


@pytest.mark.parametrize("name", where_there(HERE))
def test_what_a_change_makes_can_run_and_leaves_the_job_alone(name):
    change = BY_NAME[name]
    job = pictures_job(num_workers=2)
    place = here(job, start_s=1.0, epoch_s=5.0)
    assert change.why_not(place) is None
    setting = change.propose(place, {})
    before = copy.deepcopy(job.model.state_dict())
    changed = build(job, (setting,))
    check(changed)
    assert changed is not job
    loss_of(changed)
    if name == "channels_last":  # it trains a copy
        assert all(torch.equal(job.model.state_dict()[key], before[key]) for key in before)


@pytest.mark.parametrize("name", ["uint8_images", "channels_last", "fused_optimizer"])
def test_what_alters_no_numbers_gives_the_same_loss(name):
    change = BY_NAME[name]
    assert change.alters == "nothing"
    losses = []
    for changes in ((), (change,)):
        job = pictures_job()
        made = build(job, tuple(change.propose(here(job), {}) for change in changes))
        losses.append([loss_of(made) for _ in range(3)])
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


V2 = v2.Compose([v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize((0.5,) * 3, (0.2,) * 3)])


@pytest.mark.parametrize("transform", [transforms.ToTensor(), V2, transforms.Compose([transforms.ToTensor()])])
def test_pixels_travel_as_bytes_and_are_the_same_on_the_device(transform):
    job = pictures_job(transform)
    change = BY_NAME["uint8_images"]
    if not hasattr(transform, "transforms"):
        assert "no `transform`" in change.why_not(here(job))
        return
    assert change.why_not(here(job)) is None
    changed = build(job, (change.propose(here(job), {}),))
    plain, small = (next(iter(each.make_loader())) for each in (job, changed))
    assert small[0].dtype is torch.uint8
    assert torch.allclose(make_transfer(changed, CPU, False)(small)[0], plain[0], atol=1e-5)
    assert job.dataset.transform is transform


def test_a_mean_and_a_deviation_are_copied_to_a_device_once():
    class Copies(TorchFunctionMode):
        made = 0

        def __torch_function__(self, func, types, args=(), kwargs=None):
            self.made += func in (torch.as_tensor, torch.tensor)
            return func(*args, **(kwargs or {}))

    job = pictures_job()
    changed = build(job, (Setting(BY_NAME["uint8_images"]),))
    batch = next(iter(changed.make_loader()))
    meta = torch.device("meta")
    with Copies() as copies:
        images = [make_transfer(changed, meta, False)(batch)[0] for _ in range(3)]
    assert copies.made == 2
    assert {(image.device, image.dtype) for image in images} == {(meta, torch.float32)}


def test_what_works_on_floats_stays_where_it_is():
    erasing = transforms.Compose([transforms.ToTensor(), transforms.RandomErasing(p=1.0)])
    assert "no `transform`" in BY_NAME["uint8_images"].why_not(here(pictures_job(erasing)))
    twice = Pictures(transforms.Compose([transforms.ToTensor()]))
    twice.__class__ = type(
        "Doubling", (Pictures,), {"__getitem__": lambda self, i: 2 * Pictures.__getitem__(self, i)[0]}
    )
    job = pictures_job().replace(dataset=twice)
    assert "not be the same" in BY_NAME["uint8_images"].why_not(here(job))


class Stream(IterableDataset):
    def __iter__(self):
        yield from torch.zeros(100, 3)


@pytest.mark.parametrize(
    ("name", "fields", "why"),
    [
        ("prefetch_factor", {}, "no workers"),
        ("persistent_workers", {"num_workers": 1, "persistent_workers": True}, "already"),
        ("persistent_workers", {"num_workers": 1}, "no known length"),
        pytest.param("in_order", {"num_workers": 1}, "fewer than two", marks=NEEDS_IN_ORDER),
        ("pin_memory", {}, "on the CPU"),
        ("num_workers", {"dataset": Stream()}, "stream"),
        ("uint8_images", {"dataset": Stream()}, "stream"),
        ("fused_optimizer", {"optimizer": None}, "no optimizer"),
        ("channels_last", {"train_step": print}, "your own"),
        ("channels_last", {"model": nn.Linear(3, 2)}, "no two-dimensional convolution"),
        ("batch_size", {"batch_sampler": [[0, 1]], "batch_size": 1}, "does not choose"),
    ],
)
def test_where_a_change_does_not_apply_it_says_why(name, fields, why):
    assert why in BY_NAME[name].why_not(here(pictures_job(**fields)))


def test_workers_beyond_the_cores_only_where_they_wait():
    job = pictures_job(num_workers=2)
    change = BY_NAME["num_workers"]
    assert change.propose(here(job, cores=2), {}).value == 1
    assert change.propose(here(job, cores=2, workers_wait=True), {}).value == 4


def test_values_are_doubled_while_they_pay():
    prefetch, batch = BY_NAME["prefetch_factor"], BY_NAME["batch_size"]
    job = pictures_job(num_workers=1)
    assert prefetch.propose(here(job), {}).label == "prefetch_factor=4"
    assert prefetch.propose(here(job), {4: "dropped"}) is None
    assert batch.propose(here(job), {}).label == "batch_size=8"
    assert batch.propose(here(job.replace(batch_size=32)), {}) is None  # no four batches in an epoch


# --- the choice -------------------------------------------------------------------------------------------


def test_changes_are_chosen_by_name_and_of_ones_own():
    own = Change("half", apply=lambda pipeline: pipeline)
    assert [change.name for change in choose(["num_workers", own])] == ["num_workers", "half"]
    assert "batch_size" not in [change.name for change in choose(None, ["batch_size"])]
    safe = choose(None, safe=True)
    assert {"autocast", "batch_size"}.isdisjoint(change.name for change in safe)
    assert choose([own], safe=True) == (own,)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((["num_worker"],), "Did you mean 'num_workers'"),
        ((["nonsense"],), "There are num_workers,"),
        ((None, ["batchsize"]), "Did you mean 'batch_size'"),
        ((["compile"], ["compile"]), "No change is left"),
        ((["compile", "compile"],), "there twice"),
        (([Change("compile", apply=print), "compile"],), "there twice"),
    ],
)
def test_a_bad_choice_is_one_sentence(arguments, said):
    with pytest.raises(UsageError, match=said):
        choose(*arguments)


def test_a_change_has_a_name_and_something_to_apply():
    with pytest.raises(UsageError, match="needs a name"):
        Change("", apply=print)
    with pytest.raises(UsageError, match="cannot be called"):
        Change("half", apply=0.5)
    pipeline = Pipeline(dataset=TensorDataset(torch.zeros(4)), model=nn.Linear(1, 1))
    with pytest.raises(UsageError, match="returned a NoneType, not a Pipeline"):
        build(pipeline, (Change("half", apply=lambda pipeline: None).propose(here(pipeline), {}),))
