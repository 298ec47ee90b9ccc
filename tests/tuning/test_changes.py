"""The jobs to which changes apply, and their effect on loading."""

import copy
import os
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, Subset, TensorDataset
from torchvision import transforms
from torchvision.transforms import v2

from bottleneck.job.checks import check
from bottleneck.job.step import make_train_step, make_transfer
from bottleneck.loader import trees
from bottleneck.measure.evidence.payload import describe_payload
from bottleneck.results.evidence import Payload
from bottleneck.tuner.change import Setting, build
from bottleneck.tuner.changes.loader import WorkerThreads
from tests.tuning.jobs import BY_NAME, CPU, NEEDS_IN_ORDER, Pictures, Stream, here, pictures_job, table_job, where_there


class Doubling(Pictures):
    def __getitem__(self, index):
        return 2 * super().__getitem__(index)[0]


class Sometimes(Doubling):
    def __getitem__(self, index):
        return super().__getitem__(index) if index == 32 else Pictures.__getitem__(self, index)


class Noisy(Pictures):
    def __getitem__(self, index):
        image, label = super().__getitem__(index)
        return (image + 0.1 if torch.rand(()) < 0.01 else image), label


def loss_of(pipeline):
    batch = next(iter(pipeline.replace(num_workers=0).make_loader()))
    loss = make_train_step(pipeline)(make_transfer(pipeline, CPU, False)(batch))
    return float(loss.detach())


@pytest.fixture(autouse=True)
def without_opencv(monkeypatch):
    """Other tests of this process import it."""
    monkeypatch.delitem(sys.modules, "cv2", raising=False)


HERE = (
    "num_workers", "prefetch_factor", "in_order", "persistent_workers", "uint8_images", "autocast",
    "batch_size", "channels_last", "fused_optimizer",
)  # fmt: skip
"""Changes that apply to a job with pictures on a CPU; the others have separate tests."""


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
    losses = [loss_of(changed) for _ in range(3)]
    if name == "channels_last":  # it trains a copy
        assert all(torch.equal(job.model.state_dict()[key], before[key]) for key in before)
    if change.on != "loader" and change.alters == "nothing":
        given = pictures_job(num_workers=2)
        assert losses == pytest.approx([loss_of(given) for _ in range(3)], rel=1e-3)


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


def test_what_works_on_floats_stays_where_it_is():
    erasing = transforms.Compose([transforms.ToTensor(), transforms.RandomErasing(p=1.0)])
    assert "no `transform`" in BY_NAME["uint8_images"].why_not(here(pictures_job(erasing)))
    for kind in (Doubling, Sometimes, Noisy):
        job = pictures_job(dataset=kind(transforms.Compose([transforms.ToTensor()])))
        assert "may not be the same" in BY_NAME["uint8_images"].why_not(here(job))


def test_workers_beyond_the_cores_only_where_they_wait():
    job = pictures_job(num_workers=2)
    change = BY_NAME["num_workers"]
    assert change.propose(here(job, cores=2), {}).value == 1
    assert change.propose(here(job, cores=2, workers_wait=True), {}).value == 4
    # The diagnosis advises as many as feed the step, with the cores and the memory that are left.
    assert change.propose(here(job, cores=2, workers_wait=True, workers_advised=9), {}).value == 9


def test_values_are_doubled_while_they_pay():
    prefetch, batch = BY_NAME["prefetch_factor"], BY_NAME["batch_size"]
    job = pictures_job(num_workers=1)
    assert prefetch.propose(here(job), {}).label == "prefetch_factor=4"
    assert prefetch.propose(here(job), {4: "dropped"}) is None
    assert batch.propose(here(job), {}).label == "batch_size=8"
    assert batch.propose(here(job.replace(batch_size=32)), {}) is None  # no four batches in an epoch


def first_batch(pipeline):
    return next(iter(pipeline.replace(num_workers=0).make_loader()))


def on_device(pipeline, batch=None):
    return make_transfer(pipeline, CPU, False)(first_batch(pipeline) if batch is None else batch)


def alone(change, place):
    """The job with the first setting of a change that applies there."""
    assert change.why_not(place) is None
    setting = change.propose(place, {})
    assert change.propose(place, {setting.value: "dropped"}) is None
    return build(place.pipeline, (setting,))


class Samples(Dataset):
    """Large one-hot rows, floats in double precision, and an image that is never read."""

    def __len__(self):
        return 32

    def __getitem__(self, index):
        rows = nn.functional.one_hot(torch.arange(16) + index, 64).float()
        return {"rows": rows, "floats": torch.rand(4, 64, dtype=torch.float64), "image": torch.rand(3, 8, 8), "y": 1.5}


def samples_job(**fields):
    return table_job(Samples(), num_workers=1, **fields)


def samples_payload(unread=("['image']",)):
    payload = describe_payload(first_batch(samples_job()))
    return replace(payload, unread=unread, unread_bytes=4 * 4 * 3 * 8 * 8)


# --- what travels -----------------------------------------------------------------------------------------


def test_one_hot_rows_travel_as_indices_and_come_back_as_they_were():
    given = samples_job()
    changed = alone(BY_NAME["one_hot"], here(given, payload=samples_payload()))
    small = first_batch(changed)
    assert (small["rows"].shape, small["rows"].dtype) == ((4, 16), torch.int32)
    assert trees.equal(on_device(changed)["rows"], first_batch(given)["rows"])
    # Half of the rows of another batch are something else, as mixing samples makes them.
    mixed = [{"rows": 0.5 * sample["rows"]} for sample in map(Samples().__getitem__, range(4))]
    assert trees.equal(changed.collate_fn(mixed)["rows"], torch.stack([sample["rows"] for sample in mixed]))
    assert trees.equal(on_device(changed, changed.collate_fn(mixed))["rows"][0], mixed[0]["rows"])


class Moves:
    """A part of a batch that notes how it is moved."""

    def __init__(self):
        self.waited = []

    def to(self, device, non_blocking=False):
        self.waited.append(not non_blocking)
        return self


@pytest.mark.parametrize("pinned", [False, True])
@pytest.mark.parametrize("name", ["one_hot", "smaller_floats", "leave_out"])
def test_a_smaller_batch_is_copied_as_the_job_copies_its_own(monkeypatch, name, pinned):
    # Guards: what a copy without waiting gains is no gain of a smaller batch.
    changed = alone(BY_NAME[name], here(samples_job(), payload=samples_payload()))
    batch, part = first_batch(changed), Moves()
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda tensor: pinned and tensor.numel() > 0)
    on_device(changed, {"image": batch["image"], **batch, "part": part})
    assert part.waited == [not pinned]


def test_doubles_travel_as_floats_and_what_is_small_as_it_is():
    given = samples_job()
    change = BY_NAME["smaller_floats"]
    changed = alone(change, here(given, payload=samples_payload()))
    torch.manual_seed(0)
    small = first_batch(changed)
    assert (small["floats"].dtype, small["y"].dtype) == (torch.float32, torch.float64)
    moved = on_device(changed, small)
    assert moved["floats"].dtype is torch.float64
    torch.manual_seed(0)
    assert torch.equal(moved["floats"], first_batch(given)["floats"].float().double())


def test_floats_are_halved_only_on_top_of_autocast():
    given = table_job(TensorDataset(torch.rand(32, 100)), num_workers=1)
    change, payload = BY_NAME["smaller_floats"], describe_payload(first_batch(given))
    assert "no large tensor" in change.why_not(here(given, payload=payload))
    lower = build(given, (Setting(BY_NAME["autocast"]),))
    changed = alone(change, here(lower, payload=payload))
    assert first_batch(changed)[0].dtype is torch.bfloat16
    assert on_device(changed)[0].dtype is torch.float32


def test_what_the_step_never_reads_stays_behind_but_for_its_shape():
    given = samples_job()
    change = BY_NAME["leave_out"]
    changed = alone(change, here(given, payload=samples_payload()))
    assert change.propose(here(given, payload=samples_payload()), {}).label == "leave_out=batch['image']"
    small, moved = first_batch(changed), on_device(changed)
    assert small["image"].numel() == 0
    assert (moved["image"].shape, moved["image"].dtype) == ((4, 3, 8, 8), torch.float32)
    assert trees.equal(moved["rows"], first_batch(given)["rows"])


# --- whole batches ----------------------------------------------------------------------------------------


class Dice(TensorDataset):
    def __getitem__(self, index):
        return tuple(tensor + torch.randint(0, 6, (1,)) for tensor in super().__getitem__(index))


class Batched(TensorDataset):
    def __getitems__(self, indices):
        return [self[index] for index in indices]


TABLE = TensorDataset(torch.rand(32, 3), torch.arange(32))


@pytest.mark.parametrize("dataset", [TABLE, Subset(TABLE, range(3, 30, 2))])
def test_a_dataset_that_takes_lists_gives_the_same_batches_in_one_call(dataset):
    given = table_job(dataset)
    changed = alone(BY_NAME["whole_batches"], here(given))
    assert not hasattr(TABLE, "__getitems__")
    for plain, at_once in zip(given.make_loader(), changed.make_loader(), strict=True):
        assert trees.equal(plain, at_once)


# --- workers ----------------------------------------------------------------------------------------------


class Threads(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.get_num_threads()


def test_a_worker_has_the_threads_that_it_is_given_and_the_users_own_start(monkeypatch, tmp_path):
    def start(worker):
        (tmp_path / f"worker {worker}").touch()

    change = BY_NAME["worker_threads"]
    given = table_job(Threads(), num_workers=1, worker_init_fn=start, multiprocessing_context="fork")
    assert next(iter(build(given, (Setting(change, 2),)).make_loader())).tolist() == [2] * 4
    assert (tmp_path / "worker 0").exists()
    assert "GNU OpenMP" in change.why_not(here(given, cores=4))
    spawned = given.replace(multiprocessing_context="spawn")
    assert "mostly wait" in change.why_not(here(spawned, cores=4, workers_wait=True))
    changed = build(spawned, (Setting(change, 2),))
    proposed = [change.propose(here(one, cores=4), judged) for one, judged in ((spawned, {}), (changed, {2: "kept"}))]
    assert [setting.value for setting in proposed] == [2, 4]
    assert build(changed, (Setting(change, 4),)).make_loader().worker_init_fn.given is start
    # OpenCV takes all cores in each worker.
    seen = []
    monkeypatch.setitem(sys.modules, "cv2", SimpleNamespace(setNumThreads=seen.append))
    assert change.propose(here(given, cores=1), {}).value == 1
    monkeypatch.setattr(torch, "set_num_threads", seen.append)
    WorkerThreads(1, None)(0)
    assert seen == [1, 1]


def test_workers_start_as_quickly_as_is_safe():
    change = BY_NAME["start_method"]
    given = table_job(num_workers=1, multiprocessing_context="spawn")
    place = here(given, start_s=2.0, epoch_s=5.0)
    assert change.why_not(place) is None
    tried = [change.propose(place, dict.fromkeys(judged, "dropped")) for judged in ((), ("fork",))]
    assert [setting.value for setting in tried] == ["fork", "forkserver"]
    changed = build(given, (tried[0],))
    assert changed.make_loader().multiprocessing_context.get_start_method() == "fork"
    assert "no other method is faster" in change.why_not(here(changed, start_s=2.0, epoch_s=5.0))
    with open(__file__, "rb") as file:
        given.dataset.file = file
        assert change.propose(place, {}).value == "forkserver"


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        ({"set_epoch": print}, False),
        ({"epoch": 3}, False),
        ({"on_epoch_end": print}, False),
        ({"samples_per_epoch": 3, "load": print}, True),
    ],
)
def test_workers_that_stay_would_not_see_what_is_set_between_epochs(fields, kept):
    given = pictures_job(num_workers=1)
    vars(given.dataset).update(fields)
    why = BY_NAME["persistent_workers"].why_not(here(given, start_s=1.0, epoch_s=5.0))
    assert why is None if kept else f"there is `{next(iter(fields))}`" in why


# --- where they do not apply --------------------------------------------------------------------------------


def moves(batch, device):
    return batch


@pytest.mark.parametrize(
    ("name", "fields", "known", "why"),
    [
        ("prefetch_factor", {}, {}, "no workers"),
        ("persistent_workers", {"num_workers": 1, "persistent_workers": True}, {}, "already"),
        ("persistent_workers", {"num_workers": 1}, {}, "no known length"),
        pytest.param("in_order", {"num_workers": 1}, {}, "fewer than two", marks=NEEDS_IN_ORDER),
        ("pin_memory", {}, {}, "on the CPU"),
        ("num_workers", {"dataset": Stream()}, {}, "stream"),
        ("fused_optimizer", {"optimizer": None}, {}, "no optimizer"),
        ("channels_last", {"train_step": print}, {}, "your own"),
        ("channels_last", {"model": nn.Linear(3, 2)}, {}, "no two-dimensional convolution"),
        ("batch_size", {"batch_sampler": [[0, 1]], "batch_size": 1}, {}, "does not choose"),
        ("one_hot", {"num_workers": 1}, {}, "no large tensor"),
        ("one_hot", {"num_workers": 1, "to_device": moves}, {}, "moves its batches itself"),
        ("one_hot", {}, {}, "do not travel"),
        ("smaller_floats", {"num_workers": 1}, {}, "contents of a batch are unknown"),
        ("leave_out", {"num_workers": 1}, {}, "unknown which parts of a batch"),
        ("leave_out", {"num_workers": 1}, {"bytes": 9.0, "unread": (), "unread_bytes": 0.0}, "reads all"),
        ("leave_out", {"num_workers": 1}, {"bytes": 9.0, "unread": ("",), "unread_bytes": 9.0}, "replaces another"),
        (
            "leave_out",
            {"num_workers": 1},
            {"bytes": 9.0, "unread": ("",), "unread_bytes": 0.1},
            "unread part of a batch is small",
        ),
        ("whole_batches", {"dataset": Batched(torch.rand(32, 3))}, {}, "calls already"),
        ("whole_batches", {"dataset": Dice(torch.rand(32, 3))}, {}, "not return a batch for a list"),
        ("whole_batches", {"collate_fn": torch.stack}, {}, "its own collate_fn"),
        ("worker_threads", {"num_workers": 8, "multiprocessing_context": "spawn"}, {}, "no core"),
    ],
)
def test_where_a_change_does_not_apply_it_says_why(name, fields, known, why):
    assert why in BY_NAME[name].why_not(here(table_job(**fields), payload=Payload(**known)))


def test_workers_that_are_bound_to_fewer_cores_may_use_all_of_them(monkeypatch):
    given, seen = [], []
    job = pictures_job(num_workers=2, worker_init_fn=given.append)
    change = BY_NAME["worker_affinity"]
    assert "not seen" in change.why_not(here(job))
    assert "no workers" in change.why_not(here(pictures_job(num_workers=0)))
    assert "were not seen" in BY_NAME["gc_freeze"].why_not(here(job))
    place = here(job, advised=frozenset({"worker-affinity"}))
    assert change.why_not(place) is None
    monkeypatch.setattr("os.sched_setaffinity", lambda process, cores: seen.append((process, cores)))
    build(job, (change.propose(place, {}),)).make_loader().worker_init_fn(1)
    assert (given, seen) == ([1], [(0, frozenset(os.sched_getaffinity(0)))])
    for name in ("collect", "freeze", "set_threshold"):
        monkeypatch.setattr(f"gc.{name}", lambda *values: seen.append(values))
    build(job, (Setting(BY_NAME["gc_freeze"]),)).make_loader().worker_init_fn(2)
    assert (given, seen[1:]) == ([1, 2], [(), (), (50_000, 20, 50)])
