"""How unlike the recorded batches are, of which stages that are left out are served."""

import pytest
import torch
from torch.utils.data import DataLoader

from bottleneck.loader.plan import Plan
from bottleneck.loader.switched import SwitchedLoader
from bottleneck.measure.caches import CachedBatch
from bottleneck.measure.prepare import Recording, describe_recorded, record
from tests.support.as_json import in_json

describe_recorded = in_json(describe_recorded)


def batches(*lengths):
    return [CachedBatch(torch.zeros(length), 1) for length in lengths]


@pytest.mark.parametrize(("lengths", "size_cv"), [((8, 8, 8), 0.0), ((8,), 0.0), ((0, 0), 0.0), ((10, 20, 30), 0.5)])
def test_the_sizes_of_batches_are_told_by_their_deviation_over_their_mean(lengths, size_cv):
    described = describe_recorded(Recording(Plan("cut"), batches(*lengths)))
    assert described == {"count": len(lengths), "size_cv": pytest.approx(size_cv)}


def test_workers_may_have_recorded_more_than_was_kept_of_them():
    plan = Plan("cut", batch_sizes=(4,) * 12)
    assert describe_recorded(Recording(plan, batches(3, 5)))["count"] == 12


@pytest.mark.parametrize(("host_rooms", "device_rooms", "kept"), [(0, 100, 8), (100, 4, 3), (100, 0, 1), (100, 100, 8)])
def test_batches_that_the_loader_puts_on_a_device_take_no_host_memory(host_rooms, device_rooms, kept):
    # Guards: batches of a loader that works on the device, counted against what is free in host memory.
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
