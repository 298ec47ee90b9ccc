"""Changes to what workers send: many small tensors as few, and objects that nobody reads left out."""

import copyreg
import io
import pickle
from collections import ChainMap, namedtuple
from dataclasses import replace

import pytest
import torch
from torch.utils.data import Dataset
from torch.utils.data._utils import worker
from torchdata.stateful_dataloader import StatefulDataLoader

from bottleneck.job.pipeline import Pipeline
from bottleneck.loader import trees
from bottleneck.measure.evidence.payload import describe_payload
from bottleneck.results.evidence import Payload
from bottleneck.results.facts import PickledSeen
from bottleneck.tuner.change import Setting, build
from tests.tuning.jobs import BY_NAME, here, table_job

Target = namedtuple("Target", "boxes labels")


class Molecule:
    """A graph that travels beside its features."""

    def to(self, _device):
        return self


class Marked(torch.Tensor):
    """A tensor of a class of its own."""


class Detections(Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, index):
        boxes = torch.full((1 + index % 3, 4), float(index))
        return torch.rand(3, 200, 200), Target(boxes, torch.arange(len(boxes))), {"id": index, "path": f"{index}.png"}


def as_tuples(samples):
    return tuple(zip(*samples, strict=True))


def detections(**fields):
    return table_job(Detections(), collate_fn=as_tuples, **{"num_workers": 1, **fields})


def packed(pipeline):
    return build(pipeline, (Setting(BY_NAME["packed_tensors"]),))


@pytest.fixture
def in_worker(monkeypatch):
    monkeypatch.setattr(worker, "_worker_info", worker.WorkerInfo(id=0, num_workers=1, seed=0, dataset=None))


def sent(value):
    """Return the number of tensors that a pickle of a value has, and the value on arrival."""
    stream, tensors = io.BytesIO(), []

    def noted(tensor):
        tensors.append(tensor)
        return tensor.__reduce_ex__(4)

    pickler = pickle.Pickler(stream)
    pickler.dispatch_table = ChainMap({torch.Tensor: noted}, copyreg.dispatch_table)
    pickler.dump(value)
    return len(tensors), pickle.loads(stream.getvalue())


@pytest.mark.usefixtures("in_worker")
def test_small_tensors_travel_as_one_for_each_field_and_arrive_as_they_were():
    samples = [Detections()[index] for index in range(4)]
    given = as_tuples(samples)
    tensors, arrived = sent(packed(detections()).collate_fn(samples))
    assert sent(given)[0] == 12
    assert tensors == 4 + 2  # the pictures are large; boxes and labels are one each
    assert trees.equal(arrived, given)
    assert type(arrived[1][0]) is Target
    arrived[1][0].boxes.fill_(-1.0)
    assert torch.equal(arrived[1][1].boxes, given[1][1].boxes)


@pytest.mark.usefixtures("in_worker")
def test_tensors_of_other_kinds_travel_as_they_are():
    batch = [
        torch.rand(3, requires_grad=True),
        torch.rand(3).to_sparse(),
        torch.rand(3).as_subclass(Marked),
        torch.nn.Parameter(torch.rand(3)),
        torch.empty(0, 4),
        torch.tensor(2),
    ]
    arrived = sent(packed(table_job(num_workers=1, collate_fn=lambda _: batch)).collate_fn(None))[1]
    assert [type(part) for part in arrived] == [type(part) for part in batch]
    assert [part.requires_grad for part in arrived] == [part.requires_grad for part in batch]
    assert [(part.shape, part.layout) for part in arrived] == [(part.shape, part.layout) for part in batch]


def test_without_workers_nothing_is_packed():
    batch = next(iter(packed(detections(num_workers=0)).make_loader()))
    assert type(batch) is tuple
    assert isinstance(batch[1][0], Target)


@pytest.mark.integration
@pytest.mark.untimed
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_of_any_start_method_send_the_same_batches(method):
    given = detections(multiprocessing_context=method)
    for plain, changed in zip(given.make_loader(), packed(given).make_loader(), strict=True):
        assert trees.equal(plain[1:], changed[1:])


def test_packing_is_tried_if_a_batch_holds_many_small_tensors():
    change = BY_NAME["packed_tensors"]
    many, few = (
        describe_payload([{"boxes": torch.rand(2, 4), "labels": torch.arange(2)} for _ in range(samples)])
        for samples in (16, 4)
    )
    assert change.why_not(here(detections(), payload=many)) is None
    assert "not seen" in change.why_not(here(detections(), payload=few))
    assert "not seen" in change.why_not(here(detections()))
    assert "no workers" in change.why_not(here(detections(num_workers=0), payload=many))


# --- objects --------------------------------------------------------------------------------------------------


class Molecules(Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, index):
        return {"features": torch.rand(4), "graph": Molecule(), "name": str(index)}


def in_dict(samples):
    return {
        "features": torch.stack([sample["features"] for sample in samples]),
        "graph": [sample["graph"] for sample in samples],
        "name": [sample["name"] for sample in samples],
    }


def pairs(samples):
    return [(sample["features"], sample["graph"]) for sample in samples]


def molecules(place, collate=in_dict, *, unread=True, pickle_s=1e-3, **fields):
    seen = PickledSeen(path=place, type="Molecule", pickle_s=pickle_s, unpickle_s=0.0, unread=unread)
    payload = Payload(bytes=64.0, pickled=(seen, PickledSeen(path="['name']")))
    return here(table_job(Molecules(), collate_fn=collate, **{"num_workers": 1, **fields}), payload=payload)


def collated(place):
    setting = BY_NAME["leave_out"].propose(place, {})
    changed = build(place.pipeline, (setting,))
    return setting.label, changed.collate_fn([Molecules()[index] for index in range(3)]), changed


def test_objects_that_the_step_never_uses_stay_in_the_worker():
    place = molecules("['graph']")
    assert BY_NAME["leave_out"].why_not(place) is None
    label, batch, changed = collated(place)
    assert label == "leave_out=batch['graph']"
    assert batch["graph"] == [None, None, None]
    assert batch["name"] == ["0", "1", "2"]
    assert batch["features"].shape == (3, 4)
    assert changed.to_device is None


def test_objects_of_each_sample_are_found_by_their_place():
    _, batch, _ = collated(molecules("[*][1]", pairs))
    assert [graph for _, graph in batch] == [None, None, None]
    assert all(features.shape == (4,) for features, _ in batch)


def test_a_job_that_moves_its_batches_itself_may_leave_out_objects_only():
    place = molecules("['graph']", to_device=lambda batch, _device: batch)
    place = replace(place, payload=replace(place.payload, unread=("['features']",), unread_bytes=48.0))
    assert collated(place)[0] == "leave_out=batch['graph']"


@pytest.mark.parametrize("unread", [False, None])
def test_objects_that_may_be_read_are_sent(unread):
    assert "unknown which parts" in BY_NAME["leave_out"].why_not(molecules("['graph']", unread=unread))


def test_objects_that_cost_little_are_sent():
    assert BY_NAME["leave_out"].why_not(molecules("['graph']", pickle_s=1e-5)) is not None


# --- snapshots ------------------------------------------------------------------------------------------------


def resumable(**settings):
    loader = StatefulDataLoader(Detections(), batch_size=2, collate_fn=as_tuples, **settings)
    return here(Pipeline.from_loader(loader, train_step=len))


def test_snapshots_are_tried_at_one_of_fifty_batches_of_a_worker_or_fewer():
    change = BY_NAME["snapshot_every_n_steps"]
    assert [change.propose(resumable(num_workers=workers), {}).value for workers in (1, 2, 4)] == [100, 100, 1000]
    assert change.propose(resumable(num_workers=2, snapshot_every_n_steps=100), {}) is None
    assert "takes no snapshots" in change.why_not(resumable(num_workers=0))
    assert "takes no snapshots" in change.why_not(here(detections()))


def test_a_loader_with_rarer_snapshots_is_otherwise_the_same():
    given = resumable(num_workers=1).pipeline
    changed = build(given, (Setting(BY_NAME["snapshot_every_n_steps"], 100),)).make_loader()
    assert (type(changed), changed.snapshot_every_n_steps, changed.batch_size) == (StatefulDataLoader, 100, 2)
    assert given.make_loader().snapshot_every_n_steps == 1
