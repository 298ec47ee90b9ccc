"""`make gpu-check`: what training does to a diagnosis on a real accelerator: state, losses, shapes, clocks, devices."""

import importlib.util
from dataclasses import replace

import pytest
import torch

from benchmarks.gpu_job import Job, Settings, make_job
from benchmarks.planted import find_planted
from bottleneck.api import diagnose
from bottleneck.measure.device import devices_of, make_synchronize
from bottleneck.measure.training import TrainingState

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine"),
]


def warnings_of(result):
    return {warning.id: warning.message for warning in result.warnings}


def planted_fields(**changes):
    return find_planted("device_bound").build(device="cuda", pin_memory=True, **changes)


def test_a_replayed_graph_goes_on_with_the_state_that_was_put_back():
    # Guards: a graph moves no version, and writes to the memory that it was captured with.
    model = torch.nn.Linear(64, 64).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True, capturable=True)
    batch = torch.rand(32, 64, device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=False)
        model(batch).square().mean().backward()
        optimizer.step()

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    state = TrainingState({"the model": model, "the optimizer": optimizer}, torch.cuda.synchronize, lambda: 0.0)
    state.begin_round()
    kept = [tensor.clone() for tensor in (model.weight, *optimizer.state[model.weight].values())]
    for _ in range(5):
        graph.replay()
    torch.cuda.synchronize()
    assert not torch.equal(model.weight, kept[0])
    state.begin_round()
    now = (model.weight, *optimizer.state[model.weight].values())
    assert all(torch.equal(*pair) for pair in zip(kept, now, strict=True))
    graph.replay()
    torch.cuda.synchronize()
    assert not torch.equal(model.weight, kept[0])
    assert state.warning() is None


def test_the_copy_of_the_state_stays_on_the_device_and_putting_it_back_takes_no_more():
    model = torch.nn.Linear(4096, 4096).cuda()
    before = torch.cuda.memory_allocated()
    state = TrainingState({"the model": model}, torch.cuda.synchronize, lambda: 0.0)
    state.begin_round()
    kept = torch.cuda.memory_allocated()
    assert before + state.nbytes <= kept
    torch.cuda.reset_peak_memory_stats()
    state.begin_round()
    assert torch.cuda.max_memory_allocated() == kept
    state.release()
    assert torch.cuda.memory_allocated() == before


def test_without_room_on_the_device_the_copy_of_the_state_is_in_host_memory():
    model = torch.nn.Linear(4096, 4096).cuda()
    before = torch.cuda.memory_allocated()
    state = TrainingState({"the model": model}, torch.cuda.synchronize, lambda: 0.0, free_on_device=lambda _: 0)
    state.begin_round()
    torch.cuda.reset_peak_memory_stats()
    state.begin_round()
    assert torch.cuda.max_memory_allocated() == before


def test_a_step_of_half_precision_stays_finite_and_its_scaler_skips_nothing():
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.LazyLinear(10)).cuda()
    images = next(iter(diagnosable_loader()))[0]
    model(images.cuda().float())
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=1e-3), torch.amp.GradScaler("cuda", init_scale=1024.0)

    def step(batch):
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.float16):
            loss = torch.nn.functional.cross_entropy(model(batch[0].float()), batch[1])
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss

    result = diagnose(planted_fields(train_step=step), quick=True)
    assert not {"loss-not-finite", "steps-skipped", "weights-not-put-back"} & warnings_of(result).keys()
    assert result.evidence.training.put_back > 0


def diagnosable_loader():
    fields = planted_fields()
    return torch.utils.data.DataLoader(fields["dataset"], batch_size=fields["batch_size"])


def test_a_loss_that_is_not_finite_is_reported():
    def step(batch):
        return batch[0].float().sum() * float("nan")

    result = diagnose(planted_fields(train_step=step), quick=True)
    assert "first in round" in warnings_of(result)["loss-not-finite"]


def test_graphs_compiled_for_new_shapes_are_reported():
    compiled = torch.compile(lambda images: images.float().square().sum(), dynamic=False)
    calls = [0]

    def step(batch):
        calls[0] += 1
        return compiled(batch[0].flatten()[: 1000 + calls[0] // 20])

    with torch._dynamo.config.patch(cache_size_limit=1000):
        result = diagnose(planted_fields(train_step=step), quick=True)
    assert "compiled" in warnings_of(result)["new-shapes-in-blocks"]


@pytest.mark.skipif(importlib.util.find_spec("pynvml") is None, reason="nvidia-ml-py is not installed")
def test_the_clock_of_the_device_is_kept_for_each_block():
    result = diagnose(planted_fields(), quick=True)
    coupled = {e.name: e.coupled for e in result.experiments if e.coupled is not None}
    clocks = [block.device_clock_hz for name in ("device", "raw") for block in coupled[name].blocks]
    assert clocks
    assert all(1e8 < clock < 5e9 for clock in clocks)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="fewer than two CUDA devices on this machine")
def test_every_device_of_a_model_is_waited_for():
    model = torch.nn.Sequential(torch.nn.Linear(8, 8, device="cuda:0"), torch.nn.Linear(8, 8, device="cuda:1"))
    synchronize = make_synchronize(torch.device("cuda:0"), devices_of(model))
    with torch.cuda.device(1):
        end = torch.cuda.Event()
        torch.cuda._sleep(200_000_000)
        end.record()
    synchronize()
    assert end.query()


@pytest.mark.parametrize(
    "settings",
    [Settings(workers=8), Settings(workers=16), Settings(workers=16, pinned=False), Settings(compiled=True)],
    ids=str,
)
def test_a_real_model_with_batches_of_150_megabytes_gets_a_verdict(settings):
    result = diagnose(make_job(settings).fields(), quick=True)
    assert result.verdict.efficiency is not None
    assert result.verdict.efficiency.low <= 1.0
    assert "weights-not-put-back" not in warnings_of(result)


def test_a_real_model_is_left_as_it_was():
    job = Job(replace(Settings(), batch_size=16, workers=2, side=64), torch.device("cuda", 0))
    before = {name: tensor.clone() for name, tensor in job.model.state_dict().items()}
    diagnose(job.fields(), quick=True)
    assert all(torch.equal(before[name], tensor) for name, tensor in job.model.state_dict().items())
    assert not job.optimizer.state
