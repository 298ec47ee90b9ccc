"""Busy and idle time of a device that works asynchronously, by events of its stream, in invented time."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from bottleneck.measure.ladder import Ladder
from bottleneck.measure.machine.device_time import StreamEvents, make_events
from tests.measure.test_steady import Asynchronous

COPY_S = 0.010


class Device(Asynchronous):
    """A device that copies, too; its events are recorded when all work before them is done."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.events = StreamEvents(lambda: Recorded(self))
        self.bench = replace(self.bench, transfer=self.copy, events=self.events)

    def copy(self, batch):
        self.done_s = max(self.done_s, self.now_s) + COPY_S
        return batch


class Recorded:
    def __init__(self, device):
        self.device = device

    def record(self):
        # The stream reaches an event when its work is done; an idle one at once.
        self.at_s = max(self.device.now_s, self.device.done_s)

    def elapsed_time(self, end):
        return 1e3 * (end.at_s - self.at_s)


def measured(workers, worker_s, step_s=0.1, batches=24):
    device = Device(workers, worker_s, 0.05, step_s, 3, launch_s=0.002, steps_ahead=2)
    device.bench.prepare(Ladder.raw)
    device.bench.settle(Ladder.raw)
    block = device.bench.measure(Ladder.raw, 1, batches)
    return device.events.evidence(), block


@pytest.mark.parametrize(("workers", "worker_s"), [(2, 0.6), (4, 0.6), (8, 0.5)])
def test_the_share_of_the_step_is_the_efficiency_of_raw(workers, worker_s):
    # Guards: the host runs ahead, so that its clock shows neither copy nor step nor idle time of a batch.
    found, block = measured(workers, worker_s)
    assert found.step_s_per_batch == pytest.approx(0.1, rel=0.01)
    assert found.copy_s_per_batch == pytest.approx(COPY_S, rel=0.05)
    truth = 0.1 / (block.seconds / block.batches)
    assert found.efficiency.estimate == pytest.approx(truth, abs=0.02)
    assert found.efficiency.low - 0.02 <= truth <= found.efficiency.high + 0.02


def test_too_few_batches_show_nothing():
    assert StreamEvents(lambda: None).evidence().efficiency is None


def test_a_processor_has_no_events():
    assert make_events(torch.device("cpu")) is None
