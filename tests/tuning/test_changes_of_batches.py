"""Changes to how batches are made and travel: the train step gets the same, and where they do not apply."""

import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset

from bottleneck.job.pipeline import Pipeline
from bottleneck.job.step import make_transfer
from bottleneck.loader import trees
from bottleneck.measure.facts.payload import describe_payload
from bottleneck.results.evidence import Payload
from bottleneck.tuning.change import Context, Setting, build
from bottleneck.tuning.changes import BUILT_IN
from bottleneck.tuning.changes.loader import WorkerThreads

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)
BY_NAME = {change.name: change for change in BUILT_IN}


def job(dataset=None, **fields):
    given = {"model": nn.Linear(3, 2), "loss_fn": nn.CrossEntropyLoss(), "batch_size": 4, "device": "cpu"}
    return Pipeline(dataset=dataset or TensorDataset(torch.rand(32, 3)), **{**given, **fields})


def here(pipeline, device=CPU, **fields):
    loader = pipeline.make_loader()
    return Context(pipeline, pipeline, loader, device, **{"cores": 8, **fields})


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
    """Large one-hot rows, floats in double precision, and an image that nobody reads."""

    def __len__(self):
        return 32

    def __getitem__(self, index):
        rows = nn.functional.one_hot(torch.arange(16) + index, 64).float()
        return {"rows": rows, "floats": torch.rand(4, 64, dtype=torch.float64), "image": torch.rand(3, 8, 8), "y": 1.5}


def samples_job(**fields):
    return job(Samples(), num_workers=1, **fields)


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
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda tensor: pinned)
    on_device(changed, {**batch, "part": part})
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
    given = job(TensorDataset(torch.rand(32, 100)), num_workers=1)
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


def test_all_of_them_on_top_of_each_other_in_any_order():
    given, payload = samples_job(), samples_payload()
    names = ["one_hot", "smaller_floats", "leave_out"]
    for order in (names, names[::-1]):
        settings = tuple(BY_NAME[name].propose(here(given, payload=payload), {}) for name in order)
        moved, plain = on_device(build(given, settings)), first_batch(given)
        assert {key: (value.shape, value.dtype) for key, value in moved.items()} == {
            key: (value.shape, value.dtype) for key, value in plain.items()
        }
        assert torch.equal(moved["rows"], plain["rows"])


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
    given = job(dataset)
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
    given = job(Threads(), num_workers=1, worker_init_fn=start)
    setting = change.propose(here(given, cores=4), {})
    assert setting.value == 2
    changed = build(given, (setting,))
    assert next(iter(changed.make_loader())).tolist() == [2] * 4
    assert (tmp_path / "worker 0").exists()
    assert change.propose(here(changed, cores=4), {2: "kept"}).value == 4
    assert change.propose(here(changed, cores=3), {2: "kept"}) is None
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
    given = job(num_workers=1, multiprocessing_context="spawn")
    place = here(given, start_s=2.0, epoch_s=5.0)
    assert change.why_not(place) is None
    tried = [change.propose(place, dict.fromkeys(judged, "dropped")) for judged in ((), ("fork",))]
    assert [setting.value for setting in tried] == ["fork", "forkserver"]
    changed = build(given, (tried[0],))
    assert changed.make_loader().multiprocessing_context.get_start_method() == "fork"
    assert "the quickest" in change.why_not(here(changed, start_s=2.0, epoch_s=5.0))
    with open(__file__, "rb") as file:
        given.dataset.file = file
        assert change.propose(place, {}).value == "forkserver"


# --- where they do not apply --------------------------------------------------------------------------------


class Stream(IterableDataset):
    def __iter__(self):
        yield from torch.zeros(100, 3)


def moves(batch, device):
    return batch


@pytest.mark.parametrize(
    ("name", "fields", "known", "why"),
    [
        ("one_hot", {"num_workers": 1}, {}, "no large tensor"),
        ("one_hot", {"num_workers": 1, "to_device": moves}, {}, "moves its batches itself"),
        ("one_hot", {}, {}, "travel nowhere"),
        ("smaller_floats", {}, {}, "travel nowhere"),
        ("smaller_floats", {"num_workers": 1}, {}, "not known what a batch holds"),
        ("leave_out", {"num_workers": 1}, {}, "not known what the train step reads"),
        ("leave_out", {"num_workers": 1}, {"bytes": 9.0, "unread": (), "unread_bytes": 0.0}, "reads all"),
        ("leave_out", {"num_workers": 1}, {"bytes": 9.0, "unread": ("",), "unread_bytes": 9.0}, "stands for another"),
        ("leave_out", {"num_workers": 1}, {"bytes": 9.0, "unread": ("",), "unread_bytes": 0.1}, "little of a batch"),
        ("whole_batches", {"dataset": Stream()}, {}, "stream"),
        ("whole_batches", {"dataset": Batched(torch.rand(32, 3))}, {}, "calls already"),
        ("whole_batches", {"dataset": Dice(torch.rand(32, 3))}, {}, "no batch for a list"),
        ("whole_batches", {"dataset": Samples()}, {}, "no batch for a list"),
        ("whole_batches", {"collate_fn": torch.stack}, {}, "collate_fn of its own"),
        ("whole_batches", {"batch_sampler": [[0, 1]], "batch_size": 1}, {}, "does not choose"),
        ("worker_threads", {}, {}, "no workers"),
        ("worker_threads", {"num_workers": 8}, {}, "no core"),
        ("start_method", {}, {}, "no workers"),
        ("start_method", {"num_workers": 1}, {}, "no known length"),
    ],
)
def test_where_a_change_does_not_apply_it_says_why(name, fields, known, why):
    assert why in BY_NAME[name].why_not(here(job(**fields), payload=Payload(**known)))
