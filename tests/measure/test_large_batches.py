"""Batches that are large compared with the memory for caches: the remaining measurements, and their names."""

import time

import pytest
import torch
from torch.utils.data import DataLoader

from bottleneck.analysis.analyse import analyse
from bottleneck.loader import trees
from bottleneck.loader.recording.plan import Plan
from bottleneck.loader.switched import SwitchedLoader
from bottleneck.measure.caches import CachedBatch
from bottleneck.measure.options import MeasureOptions
from bottleneck.measure.prepare import Recording, describe_recorded, make_caches, record
from tests.measure.test_caches import Pinned
from tests.support.as_json import in_json
from tests.support.datasets import Photos
from tests.support.sessions import known_helpers, pipeline_of, run

known = pytest.fixture(autouse=True)(known_helpers)
BATCH_SIZE = 16
BATCH_BYTES = BATCH_SIZE * 40_000


class Large(Photos):
    def load(self, index):
        return torch.full((10_000,), float(index))

    def augment(self, image):
        time.sleep(0.5e-3)
        return super().augment(image)


def diagnosed(cache_bytes):
    pipeline = pipeline_of(Large(), batch_size=BATCH_SIZE, num_workers=2, train_step=lambda batch: time.sleep(2e-3))
    return run(pipeline, MeasureOptions(budget_s=12.0, cache_budget_bytes=cache_bytes))


def reasons(outcome):
    return {e.name: e.reason for e in outcome.measurement.experiments if not e.available}


@pytest.mark.integration
def test_a_hand_off_that_is_not_told_apart_is_not_called_collation():
    # Guards: caches smaller than a batch. Each worker has room for half a batch, the main process for one.
    outcome = diagnosed(2 * BATCH_BYTES + 8000)
    assert outcome.failure is None
    assert "a collated batch does not fit" in reasons(outcome)["after_collate"]
    assert [s.name for s in outcome.measurement.stages] == ["compute", "handoff+collate", "augment", "load"]
    assert outcome.measurement.cost.cache_bytes <= 2 * BATCH_BYTES + 8000
    result = analyse(outcome.measurement)
    joint = next(stage for stage in result.stages if stage.name == "handoff+collate")
    assert joint.cost_s_per_batch is not None
    assert joint.gain_if_free is not None
    assert "collate" not in {w.stage for w in result.without}

    # The memory that the reason asks for is enough.
    wanted = int(reasons(outcome)["after_collate"].split("--cache-bytes ")[1].split("MiB")[0]) << 20
    assert wanted >= outcome.measurement.evidence.cache_bytes_wanted
    outcome = diagnosed(wanted)
    assert "after_collate" not in reasons(outcome)
    assert [s.name for s in outcome.measurement.stages] == ["compute", "handoff", "collate", "augment", "load"]
    assert outcome.measurement.cost.cache_bytes <= wanted


# --- on the device -----------------------------------------------------------------------------------------


def caches_of(count, *, room):
    """Caches of 8 batches of 4 kB, with room for `room` on the device."""
    events = []

    def step(batch):
        events.append("step")

    def device_bytes():
        events.append("looked")
        return room * trees.nbytes(torch.zeros(1000))

    kept = [CachedBatch(torch.full((1000,), float(n)), 1) for n in range(count)]
    made = make_caches(
        kept, copies=True, transfer=lambda batch: batch + 0, step=step, device_bytes=device_bytes,
        synchronize=lambda: events.append("synchronised"),
    )  # fmt: skip
    return made, events


@pytest.mark.parametrize(("room", "kept"), [(100, 8), (9, 8), (4, 3), (1, 1), (0, 1)])
def test_the_device_keeps_what_it_has_room_for_and_the_host_the_same(room, kept):
    # Of what there is room for, one is the copy that shows whether the train step changes its batch.
    caches, _ = caches_of(8, room=room)
    assert len(caches.device) == len(caches.host) == kept
    held = [[cached.batch[0].item() for cached in cache.batches] for cache in (caches.host, caches.device)]
    assert held[0] == held[1]


class Noted:
    """Part of a batch that notes when it is cloned."""

    def __init__(self, events):
        self.events, self.uses = events, 0

    def __deepcopy__(self, _memo):
        self.events.append("cloned")
        clone = Noted(self.events)
        clone.uses = self.uses
        return clone

    def use(self):
        self.uses += 1


@pytest.mark.parametrize("copies", [True, False])
@pytest.mark.parametrize(("loop_copies", "waited"), [(True, ["waited"]), (False, [])])
@pytest.mark.parametrize(("use", "cloned"), [(lambda batch: batch[0].use(), ["cloned"]), (lambda _: None, [])])
def test_a_loop_that_copies_by_itself_gets_no_clone_on_the_device_that_is_not_made(
    copies, loop_copies, waited, use, cloned
):
    # Guards: a prefetcher that reads the clone in its own stream, while it is made in the current one.
    events = []
    caches = make_caches(
        [CachedBatch([Noted(events), torch.ones(1, device="meta")], 1)],
        copies=copies, transfer=list, step=use, device_bytes=lambda: 10_000,
        synchronize=lambda: events.append("waited"), copying_step=use if loop_copies else None,
    )  # fmt: skip
    events.clear()
    caches.device.serve()
    assert events == (cloned + waited if cloned else [])
    if copies:
        events.clear()
        caches.host.serve()
        assert events in ([], ["cloned"])


# --- how much the recorded batches differ ------------------------------------------------------------------


describe_recorded = in_json(describe_recorded)


def batches(*lengths):
    return [CachedBatch(torch.zeros(length), 1) for length in lengths]


@pytest.mark.parametrize(("lengths", "size_cv"), [((8, 8, 8), 0.0), ((8,), 0.0), ((0, 0), 0.0), ((10, 20, 30), 0.5)])
def test_the_sizes_of_batches_are_told_by_their_deviation_over_their_mean(lengths, size_cv):
    described = describe_recorded(Recording(Plan("cut"), batches(*lengths)))
    assert described == {"count": len(lengths), "size_cv": pytest.approx(size_cv)}


@pytest.mark.parametrize(("host_rooms", "device_rooms", "kept"), [(0, 100, 8), (100, 4, 3), (100, 0, 1), (100, 100, 8)])
def test_batches_that_the_loader_puts_on_a_device_take_no_host_memory(host_rooms, device_rooms, kept):
    # Guards: batches of a loader that works on the device, counted against free host memory.
    batch_bytes = 4 * 100 * 4
    rows = [torch.full((100,), float(n)) for n in range(400)]
    user_loader = DataLoader(rows, batch_size=4, collate_fn=lambda rows: torch.stack(rows).to("meta"))
    loader = SwitchedLoader(user_loader, (), 0, 60.0)
    try:
        loader.start()
        loader.allow_caches(1 << 20)
        recorded = record(
            loader, 0, host_rooms * batch_bytes + 1000, lambda: device_rooms * batch_bytes, 60.0, lambda: 0.0
        )
    finally:
        loader.close()
    assert len(recorded.batches) == kept


@pytest.mark.parametrize(("is_pinned", "kept"), [(False, 8), (True, 6)])
def test_batches_in_pinned_memory_take_what_is_locked_for_them(is_pinned, kept):
    rows = [torch.full((100,), float(n)) for n in range(400)]  # four take 1,600 bytes, for which 2,048 are locked

    def collate(rows):
        return torch.stack(rows).as_subclass(Pinned) if is_pinned else torch.stack(rows)

    loader = SwitchedLoader(DataLoader(rows, batch_size=4, collate_fn=collate), (), 0, 60.0)
    try:
        loader.start()
        loader.allow_caches(1 << 20)
        recorded = record(loader, 0, 10 * 1600, lambda: 0, 60.0, lambda: 0.0)
    finally:
        loader.close()
    assert len(recorded.batches) == kept
