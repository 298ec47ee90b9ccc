"""Batches cached in the main process do not decay."""

from collections import UserDict
from dataclasses import dataclass

import pytest
import torch

from bottleneck.measure.caches import BatchCache, CachedBatch, copy_batch, keep_on_host, tensor_bytes, tensors_of


@dataclass(frozen=True)
class Batch:
    image: torch.Tensor
    names: list


def cache_of(count=3):
    return BatchCache([CachedBatch({"x": torch.full((2,), float(n))}, 2) for n in range(count)])


def values(cache, count):
    return [cache.serve().batch["x"][0].item() for _ in range(count)]


def in_place(batch):
    batch["x"].mul_(2).add_(1)


def test_batches_are_served_in_turn():
    cache = cache_of()
    assert len(cache) == 3
    assert values(cache, 7) == [0, 1, 2, 0, 1, 2, 0]
    assert cache.nbytes >= 24
    assert [cached.samples for cached in cache.batches] == [2, 2, 2]


def test_the_same_objects_are_served_where_nobody_changes_them():
    cache = cache_of(1)
    assert cache.probe(lambda batch: batch["x"].sum()) is False
    assert cache.serve().batch is cache.serve().batch


def test_a_step_that_works_in_place_gets_a_clone_each_time():
    # Guards: in-place ops in the train step make the cached batch decay.
    cache = cache_of()
    assert cache.probe(in_place) is True
    for _ in range(3):
        for expected in (0, 1, 2):
            batch = cache.serve().batch
            assert batch["x"][0].item() == expected
            in_place(batch)


def test_what_the_probe_changed_is_put_back():
    cache = cache_of()
    cache.probe(in_place)
    assert values(cache, 3) == [0, 1, 2]


def test_a_change_without_a_version_counter_is_seen_by_the_probe():
    cache = BatchCache([CachedBatch([torch.ones(2).numpy(), []], 2)])
    assert cache.probe(lambda batch: batch[1].append(1)) is True
    assert cache.serve().batch[1] == []


def test_a_change_that_leaves_the_same_values_is_none():
    cache = cache_of(1)
    assert cache.probe(lambda batch: batch["x"].mul_(1)) is False
    assert not cache.changed_since_probe()


def test_a_change_later_on_is_seen_and_what_was_changed_is_served_no_more():
    # Guards: a step that works in place only every now and then; watched through tensor._version.
    cache = cache_of()
    cache.probe(lambda batch: None)
    assert not cache.changed_since_probe()
    cache.serve().batch["x"].add_(10)
    assert cache.changed_since_probe()
    cache.clone_from_now_on(lambda: pytest.fail("there are others"))
    assert not cache.changed_since_probe()
    for _ in range(2):
        assert values(cache, 2) == [1, 2]
        in_place(cache.serve().batch)
        cache.serve()


def test_a_fresh_batch_is_made_where_all_were_changed():
    cache = cache_of(2)
    cache.probe(lambda batch: None)
    for _ in range(2):
        cache.serve().batch["x"].add_(10)
    cache.clone_from_now_on(lambda: CachedBatch({"x": torch.full((2,), 7)}, 2))
    assert values(cache, 2) == [7, 7]


def test_nothing_is_watched_any_more_where_clones_are_served():
    cache = cache_of()
    cache.probe(in_place)
    in_place(cache.serve().batch)
    assert not cache.changed_since_probe()


def test_inference_tensors_have_no_version_and_do_no_harm():
    with torch.inference_mode():
        cache = BatchCache([CachedBatch([torch.ones(2)], 2)])
        assert cache.probe(lambda batch: None) is False
    assert not cache.changed_since_probe()


class Encoding(UserDict):
    """Moves itself, as a tokenizer's batch does."""

    def to(self, device):
        self.data = {key: value.to(device) for key, value in self.data.items()}
        return self


class Graph:
    """Moves itself, and compares by identity, as a batch of graphs does."""

    def __init__(self, nodes):
        self.nodes = nodes

    def to(self, device):
        self.nodes = self.nodes.to(device)
        return self


def move_entry(batch, device):
    batch["x"] = batch["x"].to(device)


@pytest.mark.parametrize(
    ("make", "move"),
    [
        (lambda x: Encoding(x=x), Encoding.to),
        (Graph, Graph.to),
        (lambda x: {"x": x}, move_entry),
    ],
    ids=["mapping", "object", "entry"],
)
def test_a_batch_that_the_copy_to_the_device_moves_in_place_stays_on_the_host(make, move):
    # Guards: cached host batches that have become device batches: `host` equals `device`, and `copy` reads 0.
    cache = BatchCache([CachedBatch(make(torch.full((2,), float(n))), 2) for n in range(2)])
    assert cache.probe(lambda batch: move(batch, "meta")) is True
    for n in (0, 1, 0, 1):
        batch = cache.serve().batch
        tensor = batch.nodes if isinstance(batch, Graph) else batch["x"]
        assert tensor.device.type == "cpu"
        assert tensor.tolist() == [n, n]
        move(batch, "meta")


class Pinned(torch.Tensor):
    """Stands for pinned memory, which only machines with an accelerator have."""

    def is_pinned(self):
        return True

    def __deepcopy__(self, _memo):
        return self.as_subclass(torch.Tensor).clone()

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        options = dict(kwargs or {})
        pinned = options.pop("pin_memory", False) or function is torch.Tensor.copy_
        made = super().__torch_function__(function, types, args, options)
        return made.as_subclass(cls if pinned else torch.Tensor) if isinstance(made, torch.Tensor) else made


def test_clones_of_pinned_batches_are_pinned():
    # Guards: clones in pageable memory, which take longer to copy to the device than what the loader gives.
    cache = BatchCache([CachedBatch({"x": torch.ones(2).as_subclass(Pinned), "y": torch.ones(2)}, 2)])
    cache.probe(in_place)
    for _ in range(2):
        batch = cache.serve().batch
        assert (type(batch["x"]), batch["x"].tolist()) == (Pinned, [1, 1])
        assert not batch["y"].is_pinned()
        batch["x"].zero_()


class PinnedGraph(Graph):
    """Pins itself, as the loader lets it do."""

    def pin_memory(self):
        self.nodes = self.nodes.as_subclass(Pinned)
        return self


def test_an_object_in_pinned_memory_is_kept_there_and_cloned_there():
    # Guards: a pinned batch of graphs that is pageable in `host`, where it then takes longer to copy than in `raw`.
    batch = [PinnedGraph(torch.ones(2)).pin_memory()]
    assert keep_on_host(batch)[0] is batch[0]
    [clone] = copy_batch(batch)
    assert (type(clone.nodes), clone.nodes.tolist()) == (Pinned, [1, 1])
    assert clone.nodes.data_ptr() != batch[0].nodes.data_ptr()


def test_the_tensors_of_an_object_are_seen():
    batch = {"graph": Graph(torch.ones(3, device="meta")), "y": torch.ones(2)}
    assert [tensor.shape for tensor in tensors_of(batch)] == [(3,), (2,)]
    assert tensor_bytes(batch) == {torch.device("meta"): 12, torch.device("cpu"): 8}


def test_a_change_of_an_object_later_on_is_seen():
    cache = BatchCache([CachedBatch(Graph(torch.ones(3)), 1)])
    assert cache.probe(lambda batch: None) is False
    cache.serve().batch.nodes.add_(1)
    assert cache.changed_since_probe()


def test_an_error_of_the_step_is_passed_on():
    with pytest.raises(ZeroDivisionError):
        cache_of().probe(lambda batch: 1 / 0)


def test_batches_outlive_their_worker():
    # Shared memory of a worker is copied: otherwise descriptors would be held as long as the cache lives.
    batch = Batch(torch.ones(2).share_memory_(), ["a", {"deep": torch.zeros(1).share_memory_()}])
    kept = keep_on_host(batch)
    assert isinstance(kept, Batch)
    assert not any(tensor.is_shared() for tensor in tensors_of(kept))
    assert len(tensors_of(kept)) == 2
    batch.image.zero_()
    assert kept.image.tolist() == [1, 1]
