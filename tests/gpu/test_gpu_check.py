"""`make gpu-check`: what a step that sleeps cannot show, on a real accelerator.

Compared are verdicts and ratios of times on the same device, never times with a number written down here.
"""

import functools
import time

import pytest
import torch
from torch.utils.data import Dataset

from benchmarks.planted import find_planted
from bottleneck.api import diagnose

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine"),
]

BATCH, SIDE = 64, 224


class DeviceStep:
    """Keeps the device busy for a time, and the host not at all: launched, not waited for."""

    def __init__(self, seconds: float) -> None:
        self.cycles = int(seconds * cycles_per_second())

    def __call__(self, batch) -> None:
        torch.cuda._sleep(self.cycles)


class DeviceCopy:
    """A copy to the device that keeps the device's own stream busy, as a slow link does."""

    def __init__(self, seconds: float) -> None:
        self.cycles = int(seconds * cycles_per_second())

    def __call__(self, batch, device):
        torch.cuda._sleep(self.cycles)
        return [part.to(device, non_blocking=True) for part in batch]


class InPlaceStep:
    """Destroys its batch, and counts the batches that arrive destroyed already.

    The counters belong to the class: state that a step keeps itself is restored after a diagnosis.
    """

    destroyed: torch.Tensor
    calls: int

    def __init__(self) -> None:
        InPlaceStep.destroyed = torch.zeros((), dtype=torch.int64, device="cuda")
        InPlaceStep.calls = 0

    def __call__(self, batch) -> None:
        images, _ = batch
        InPlaceStep.calls += 1
        InPlaceStep.destroyed += (images.amax() <= 0).to(torch.int64)
        images.zero_()
        torch.cuda._sleep(int(0.005 * cycles_per_second()))


class Blocks(Dataset):
    """Big samples that cost nothing to make: what remains is moving them."""

    def __init__(self, length: int = 10_000) -> None:
        self.length = length
        self.pool = torch.rand(8, 3, SIDE, SIDE)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index):
        return self.pool[index % len(self.pool)], index % 10


@functools.cache
def cycles_per_second() -> float:
    """Return the cycles of `torch.cuda._sleep` in a second, timed once with CUDA events when the clocks are up."""
    cycles, until_s = 20_000_000, time.perf_counter() + 0.5
    while time.perf_counter() < until_s:
        rate = cycles / device_seconds(lambda: torch.cuda._sleep(cycles))
    tenth = int(0.1 * rate)
    return tenth / device_seconds(lambda: torch.cuda._sleep(tenth))


def device_seconds(work) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    work()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / 1000


def stage_of(result, name):
    return next(stage for stage in result.stages if stage.name == name)


def experiment_of(result, name):
    return next(experiment for experiment in result.experiments if experiment.name == name)


@pytest.mark.parametrize("pin_memory", [False, True], ids=["pageable", "pinned"])
@pytest.mark.parametrize("name", ["device_bound", "load_wait", "augment_spin", "collate_spin", "last_straw"])
def test_planted_bottlenecks_are_found(name, pin_memory):
    planted = find_planted(name)
    fields = planted.build(device="cuda", train_step=DeviceStep(planted.step_s), pin_memory=pin_memory)
    verdict = diagnose(fields, quick=True).verdict
    assert (verdict.state, verdict.bottleneck) == (planted.state, planted.bottleneck)


def test_a_planted_slow_copy_is_found():
    planted = find_planted("copy_slow")
    fields = planted.build(device="cuda", train_step=DeviceStep(planted.step_s), to_device=DeviceCopy(0.006))
    result = diagnose(fields, quick=True)
    assert (result.verdict.state, result.verdict.bottleneck) == ("input_bound", "copy")
    assert stage_of(result, "copy").cost_s_per_batch.estimate == pytest.approx(0.006, rel=0.10)


def test_the_step_takes_as_long_as_cuda_events_say():
    step = DeviceStep(0.010)
    steps = 50
    by_events = device_seconds(lambda: [step(None) for _ in range(steps)]) / steps
    fields = find_planted("device_bound").build(device="cuda", train_step=step, pin_memory=True)
    ours = experiment_of(diagnose(fields, quick=True), "device").coupled.seconds_per_batch
    assert ours == pytest.approx(by_events, rel=0.02)


def test_pinned_copies_are_cheaper_than_pageable_ones():
    def copy_cost(pin_memory: bool) -> float:
        fields = {
            "dataset": Blocks(),
            "train_step": DeviceStep(0.010),
            "device": "cuda",
            "batch_size": BATCH,
            "num_workers": 4,
            "pin_memory": pin_memory,
            "drop_last": True,
        }
        return stage_of(diagnose(fields, quick=True), "copy").cost_s_per_batch.estimate

    assert copy_cost(pin_memory=True) < copy_cost(pin_memory=False)


@pytest.mark.parametrize("pin_memory", [False, True], ids=["pageable", "pinned"])
def test_an_in_place_step_never_gets_a_batch_twice(pin_memory):
    step = InPlaceStep()
    fields = find_planted("augment_spin").build(device="cuda", train_step=step, pin_memory=pin_memory)
    diagnose(fields, quick=True)
    assert step.calls > 100
    assert int(step.destroyed) == 0


def test_the_model_is_left_as_it_was():
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.LazyLinear(10)).cuda()
    model(torch.zeros(2, 3, 32, 32, device="cuda"))
    optimizer = torch.optim.Adam(model.parameters())
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state = torch.cuda.get_rng_state()
    fields = find_planted("device_bound").build(
        device="cuda",
        train_step=None,
        model=model,
        loss_fn=torch.nn.CrossEntropyLoss(),
        optimizer=optimizer,
    )
    diagnose(fields, quick=True)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert all(tensor.is_cuda for tensor in model.state_dict().values())
    assert not optimizer.state
    assert torch.equal(state, torch.cuda.get_rng_state())


def test_a_job_that_the_device_holds_is_traced_with_its_kernels():
    fields = find_planted("device_bound").build(device="cuda", train_step=DeviceStep(0.010), pin_memory=True)
    trace = diagnose(fields, quick=True).evidence.trace.device
    assert trace.device_busy_share > 0.9
    assert trace.device_busy_s_per_step == pytest.approx(0.010, rel=0.1)
    assert trace.launches_per_step == 1
    assert trace.synchronisations == ()


def test_a_trace_shows_products_and_the_line_that_waits(tmp_path):
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, 512), torch.nn.Linear(512, 10)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())

    def step(batch):
        images, labels = batch
        loss = torch.nn.functional.cross_entropy(model(images[:, :, :32, :32]), labels)
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        optimizer.step()
        return loss.item()

    fields = {"dataset": Blocks(), "train_step": step, "model": model, "optimizer": optimizer, "device": "cuda"}
    evidence = diagnose({**fields, "batch_size": BATCH, "num_workers": 2}, quick=True, trace=tmp_path).evidence
    device, facts = evidence.trace.device, evidence.model
    assert 0 < device.device_busy_share < 1
    assert 0 < device.products_s_per_step < device.device_busy_s_per_step
    assert sum(row.share for row in device.top) == pytest.approx(1, abs=0.05)
    [wait] = device.synchronisations
    line = step.__code__.co_firstlineno + 6
    assert (wait.name, wait.calls_per_step) == (f"tests/gpu/test_gpu_check.py:{line}", 1)
    assert facts.computed_dtypes.keys() == {"float32"}
    assert {path.name for path in tmp_path.iterdir()} == {"device.json.gz", "raw.json.gz"}
