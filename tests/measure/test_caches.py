"""The batches in the main process: how many there are, and which are replayed."""

import itertools
import weakref
from collections import UserDict
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bottleneck.errors import MeasurementError
from bottleneck.loader import trees
from bottleneck.measure.caches import BatchCache, CachedBatch, choose_budget, keep_on_host, tensors_of
from bottleneck.measure.replays import Replays, shape_of

# --- what caches may take, by the size of a batch and the memory that is free --------------------------------


MB, GB, GIB = 10**6, 10**9, 1 << 30


def choose(batch, workers=2, *, given=None, free=24 * GIB, device_shares=False):
    return choose_budget(batch, workers, given=given, free_bytes=free, device_shares=device_shares)


@pytest.mark.parametrize("workers", [1, 2, 16, 64])
@pytest.mark.parametrize("batch", [38 * MB, 154 * MB, 308 * MB, 500 * MB])
def test_with_memory_for_it_each_worker_gets_three_batches_and_the_main_process_eight(batch, workers):
    # Guards: a batch of 154 MB was refused, and 16 workers had no room for one of 77 MB.
    budget = choose(batch, workers, free=1000 * GB)
    assert budget.worker_bytes >= 3 * batch
    assert budget.host_bytes >= 8 * batch


@pytest.mark.parametrize(
    "options", [{"given": 10 * MB - 1}, {"free": 20 * MB - 2}, {"given": 19 * MB, "device_shares": True}]
)
def test_a_batch_that_does_not_fit_is_refused_with_a_remedy_that_works(options):
    with pytest.raises(MeasurementError, match="One batch takes") as caught:
        choose(10 * MB, **options)
    wanted = int(caught.value.remedy.split("--cache-bytes ")[1].split("MiB")[0]) << 20
    assert f"cache_bytes={wanted >> 20} << 20" in caught.value.remedy
    budget = choose(10 * MB, **options | {"given": wanted})
    assert budget.worker_bytes >= 3 * 10 * MB
    assert budget.host_bytes >= 8 * 10 * MB


@given(
    batch=st.integers(1, 10 * GB), workers=st.integers(1, 256), free=st.integers(0, 4000 * GB),
    allowed=st.none() | st.integers(1, 4000 * GB), device_shares=st.booleans(),
)  # fmt: skip
def test_the_caches_never_take_more_than_they_may(batch, workers, free, allowed, device_shares):
    try:
        budget = choose(batch, workers, given=allowed, free=free, device_shares=device_shares)
    except MeasurementError:
        assert (2 if device_shares else 1) * batch > (free // 2 if allowed is None else allowed)
        return
    taken = workers * budget.worker_bytes + (2 if device_shares else 1) * budget.host_bytes
    if allowed is not None:
        assert taken <= allowed
    else:
        assert taken <= max(free // 4, (2 if device_shares else 1) * batch)
    assert budget.host_bytes >= batch
    assert budget.worker_bytes >= 0


# --- device and host replay what raw received, so that the mix of batches cancels ----------------------------


BATCH_BYTES = 4 * 100


def batch_of(length, value=0.0):
    return CachedBatch(torch.full((4, length), value), 4)


def replays(room=100, known=(25,), free=1e9, **options):
    recorded = [batch_of(length) for length in known]
    return Replays(room * BATCH_BYTES, recorded, free_shared_memory=lambda: free, **options)


def gather(found, batches, lengths):
    assert found.begin(batches)
    for number, length in enumerate(lengths):
        found.add(*vars(batch_of(length, float(number))).values())
    return [int(cached.batch[0, 0]) for cached in found.take()]


def test_batches_that_differ_are_replayed_as_raw_had_them():
    # Guards: an upper bound on the 24 longest batches, below the job itself.
    found = replays(known=(25, 10))
    assert found.vary
    assert gather(found, 10, [25, 10] * 5) == list(range(10))


def test_where_not_all_fit_they_are_thinned_out_evenly():
    found = replays(room=9, known=(25, 10))
    kept = gather(found, 20, [25, 10, 15, 20] * 5)
    assert len(kept) <= 9
    assert {b - a for a, b in itertools.pairwise(kept)} == {kept[1]}
    assert kept[-1] >= 15


def test_another_shape_is_noticed_also_when_all_were_alike():
    # Guards: a size that changes after the batches that were recorded.
    found = replays(known=(25, 25))
    assert not found.vary
    assert len(gather(found, 20, [25] * 20)) == 2
    assert not found.vary
    gather(found, 20, [30] * 20)
    assert found.vary


@pytest.mark.parametrize(
    ("lengths", "rarely"), [([30] + [25] * 19, True), ([30] * 20, False), ([90] + [25] * 19, False)]
)
def test_a_shape_that_is_met_once_is_rare_where_its_batches_are_no_larger(lengths, rarely):
    found = replays(known=(25,) * 8)
    for _ in range(3):
        gather(found, 20, [25] * 20)
    gather(found, 20, lengths)
    assert (found.vary, found.vary_rarely) == (True, rarely)


@pytest.mark.parametrize(
    ("free", "in_shared_memory", "copied"), [(1e9, True, False), (100, True, True), (100, False, False)]
)
def test_shared_memory_that_is_small_is_not_held(free, in_shared_memory, copied):
    # Guards: batches that are held there take the room that the workers need, and a worker dies.
    found = replays(known=(25, 10), free=free, in_shared_memory=in_shared_memory)
    assert found.begin(4)
    original = batch_of(25)
    found.add(original.batch, original.samples)
    held = found._gathered[0].batch.data_ptr() == original.batch.data_ptr()
    assert held != copied


def test_of_batches_that_take_long_to_copy_fewer_are_kept():
    # Guards: of a diagnosis of 55 s, 30 s went into copying batches of 48,000 Python objects.
    ticks = itertools.count()
    found = replays(known=(25, 10), clock=lambda: 0.05 * next(ticks))
    assert gather(found, 20, [25, 10] * 10) == [0, 7, 14]  # a tenth of a second each, as it seems
    assert len(gather(found, 20, [25, 10] * 10)) == 20  # it was 0.05 s for all of them


def test_shapes_tell_batches_apart_also_in_containers():
    def nested(length, words):
        return {"x": torch.zeros(2, length), "y": [words, ("a", 1)]}

    assert shape_of(nested(3, "ab")) == shape_of(nested(3, "cd"))
    assert len({shape_of(nested(*of)) for of in ((3, "ab"), (4, "ab"), (3, "abc"))}) == 3


def test_a_cache_serves_what_it_is_given():
    cache = BatchCache([batch_of(25, value) for value in (0.0, 1.0, 2.0)])
    cache.serve()
    cache.exchange([batch_of(25, 7.0)], whole=False)
    assert sorted(float(c.batch[0, 0]) for c in cache.batches) in ([0.0, 2.0, 7.0], [1.0, 2.0, 7.0], [0.0, 1.0, 7.0])
    cache.exchange([batch_of(25, 8.0), batch_of(25, 9.0)], whole=True)
    assert [float(cache.serve().batch[0, 0]) for _ in range(3)] == [8.0, 9.0, 8.0]
    assert not cache.changed_since_probe()
    cache.batches[0].batch.add_(1)
    assert cache.changed_since_probe()


def test_what_one_block_holds_is_let_go_of_within_the_next():
    # Guards: to let go of a batch of 300 MB takes 40 ms, which the job pays and a block that only holds does not.
    found, alive = replays(known=(25, 10)), []

    def block(batches):
        found.begin(batches)
        counts = []
        for _ in range(batches):
            batch = batch_of(25)
            alive.append(weakref.ref(batch.batch))
            found.add(*vars(batch).values())
            del batch
            counts.append(sum(ref() is not None for ref in alive))
        found.take()
        return counts

    assert block(10) == list(range(1, 11))
    assert block(10) == [10] * 10
    assert block(8)[-1] == 10


# --- batches cached in the main process do not decay -------------------------------------------------------


@dataclass(frozen=True)
class Batch:
    image: torch.Tensor
    names: list


def cache_of(count=3):
    return BatchCache([CachedBatch({"x": torch.full((2,), float(n))}, 2) for n in range(count)])


def in_place(batch):
    batch["x"].mul_(2).add_(1)


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


def test_a_change_without_a_version_counter_is_seen_by_the_probe():
    cache = BatchCache([CachedBatch([torch.ones(2).numpy(), []], 2)])
    assert cache.probe(lambda batch: batch[0].fill(7)) is True
    assert cache.serve().batch[0].tolist() == [1, 1]


def test_a_list_that_grows_is_served_as_it_was():
    cache = BatchCache([CachedBatch([torch.ones(2), []], 2)])
    cache.probe(lambda batch: batch[1].append(1))
    for _ in range(2):
        batch = cache.serve().batch
        assert batch[1] == []
        batch[1].append(1)


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
        assert [cache.serve().batch["x"][0].item() for _ in range(2)] == [1, 2]
        in_place(cache.serve().batch)
        cache.serve()


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


class SharedGraph:
    """Moves itself within a mapping that a shallow copy has, too."""

    def __init__(self, nodes):
        self.parts = {"nodes": nodes}

    @property
    def nodes(self):
        return self.parts["nodes"]

    def to(self, device):
        self.parts["nodes"] = self.nodes.to(device)
        return self


def move_entry(batch, device):
    batch["x"] = batch["x"].to(device)


@pytest.mark.parametrize(
    ("make", "move"),
    [
        (lambda x: Encoding(x=x), Encoding.to),
        (Graph, Graph.to),
        (lambda x: {"x": x}, move_entry),
        (SharedGraph, SharedGraph.to),
    ],
    ids=["mapping", "object", "entry", "shared"],
)
def test_a_batch_that_the_copy_to_the_device_moves_in_place_stays_on_the_host(make, move):
    # Guards: cached host batches that have become device batches: `host` equals `device`, and `copy` reads 0.
    cache = BatchCache([CachedBatch(make(torch.full((2,), float(n))), 2) for n in range(2)])
    cache.probe(lambda batch: move(batch, "meta"))
    for n in (0, 1, 0, 1):
        batch = cache.serve().batch
        tensor = batch["x"] if isinstance(batch, dict | UserDict) else batch.nodes
        assert tensor.device.type == "cpu"
        assert tensor.tolist() == [n, n]
        move(batch, "meta")


@pytest.mark.parametrize(
    ("make", "move"),
    [(lambda x: Encoding(x=x), Encoding.to), (Graph, Graph.to), (lambda x: {"x": x, "y": [1]}, move_entry)],
    ids=["mapping", "object", "entry"],
)
def test_where_only_entries_are_replaced_the_same_tensors_are_served_in_new_containers(make, move):
    # Guards: a clone of each batch of 38 MB, 17 ms, for `batch[key] = batch[key].to(device)`: the copy cost nothing.
    batch = make(torch.zeros(9_500_000))
    (given,) = tensors_of(batch)
    cache = BatchCache([CachedBatch(batch, 2)])
    assert cache.probe(lambda batch: move(batch, "meta")) is False
    assert cache.renews
    for _ in range(2):
        served = cache.serve().batch
        assert served is not batch
        assert tensors_of(served) == [given]
        assert tensors_of(served)[0] is given
        move(served, "meta")


def test_an_entry_that_is_replaced_by_a_pinned_one_is_served_as_it_was():
    # Guards: a batch that the loop has pinned once, so that its copy to the device seems quicker than in the job.
    cache = BatchCache([CachedBatch({"x": torch.ones(2)}, 2)])
    cache.probe(lambda batch: batch.update(x=batch["x"].as_subclass(Pinned).clone()))
    assert not cache.serve().batch["x"].is_pinned()
    cache.serve().batch.update(x=torch.zeros(2).as_subclass(Pinned))
    assert not cache.serve().batch["x"].is_pinned()


def test_a_tensor_that_is_written_gets_clones_also_where_entries_are_replaced():
    cache = cache_of(1)

    def use(batch):
        in_place(batch)
        move_entry(batch, "meta")

    assert cache.probe(use) is True
    for _ in range(2):
        batch = cache.serve().batch
        assert batch["x"].tolist() == [0, 0]
        use(batch)


@pytest.mark.parametrize("free", [1e9, 100])
def test_a_batch_of_raw_is_replayed_as_the_loader_gave_it(free):
    # Guards: raw's step moves the entries of its batch after it was gathered, and `host` replays device batches.
    cache = BatchCache([CachedBatch({"x": torch.zeros(2)}, 2)])
    cache.probe(lambda batch: move_entry(batch, "meta"))
    found = replays(free=free)
    found.begin(2)
    batch = {"x": torch.ones(2)}
    found.add(batch, 2, cache.lend)
    move_entry(batch, "meta")
    cache.exchange(found.take(), whole=True)
    assert cache.serve().batch["x"].tolist() == [1, 1]


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


def test_pinned_memory_counts_as_the_pieces_that_it_comes_in():
    # Guards: 154 MB take 256 of locked memory, so that eight batches were 2 GB and counted as 1.2.
    plain, pinned = torch.zeros(300), torch.zeros(300).as_subclass(Pinned)
    cache = BatchCache([CachedBatch([pinned, pinned, plain], 4)])
    assert cache.nbytes - trees.nbytes([plain, plain, plain]) == 2048
    assert BatchCache([CachedBatch(torch.zeros(256).as_subclass(Pinned), 4)]).nbytes == 1024
    rooms = [Replays(1500, [CachedBatch(one, 4)], free_shared_memory=lambda: 1e9) for one in (plain, pinned)]
    assert [room.begin(2) for room in rooms] == [True, False]


def test_batches_outlive_their_worker():
    # Shared memory of a worker is copied: otherwise descriptors would be held as long as the cache lives.
    batch = Batch(torch.ones(2).share_memory_(), ["a", {"deep": torch.zeros(1).share_memory_()}])
    kept = keep_on_host(batch)
    assert isinstance(kept, Batch)
    assert not any(tensor.is_shared() for tensor in tensors_of(kept))
    assert len(tensors_of(kept)) == 2
    batch.image.zero_()
    assert kept.image.tolist() == [1, 1]
