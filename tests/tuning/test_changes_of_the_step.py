"""Changes to the train step: where they apply, what a step is run with, and that nothing of it stays."""

import copy
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from bottleneck.errors import MeasurementError
from bottleneck.job.checks import check
from bottleneck.job.pipeline import Pipeline
from bottleneck.job.step import make_train_step, step_surroundings
from bottleneck.tuner.change import Setting, build
from bottleneck.tuner.changes import compiling
from tests.tuning.jobs import BY_NAME, CPU, CUDA, here


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 4))


def job(**fields):
    model = network()
    dataset = TensorDataset(torch.rand(64, 3, 8, 8), torch.arange(64) % 4)
    given = {"dataset": dataset, "model": model, "loss_fn": nn.CrossEntropyLoss(), "batch_size": 8, "device": "cpu"}
    return Pipeline(**{**given, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), **fields})


@pytest.fixture
def ampere(monkeypatch):
    """Capabilities of a CUDA device."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))


def seen_in_a_step(pipeline, look):
    """Return facts observed within a train step of any kind."""
    seen = []

    class Looking(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, images):
            seen.append(look())
            return self.inner(images)

    if pipeline.train_step is None:
        pipeline = pipeline.replace(model=Looking(pipeline.model))
    batch = next(iter(pipeline.make_loader()))
    make_train_step(pipeline)(batch)
    return seen[0] if seen else look


SETTINGS = {"tf32": (torch.get_float32_matmul_precision, "high"), "threads": (torch.get_num_threads, 1)}


@pytest.fixture
def two_threads():
    given = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(given)


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.usefixtures("ampere", "two_threads")
def test_a_setting_of_the_process_holds_during_a_step_only(name):
    look, wanted = SETTINGS[name]
    before = look()
    place = here(job(), CPU if name == "threads" else CUDA, cores=1)
    assert BY_NAME[name].why_not(place) is None
    setting = BY_NAME[name].propose(place, {})
    changed = build(place.pipeline, (setting,)).replace(batch_size=4)  # what comes on top of it keeps it
    assert seen_in_a_step(changed, look) == wanted
    assert look() == before

    def failing(batch):
        assert look() == wanted
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        make_train_step(changed.replace(train_step=failing))(None)
    assert look() == before
    with step_surroundings(changed):  # as a block does, around its steps
        assert seen_in_a_step(changed, look) == wanted
        assert look() == wanted
    assert look() == before
    assert seen_in_a_step(place.pipeline, look) == before


@pytest.mark.usefixtures("two_threads")
def test_threads_of_the_step_leave_cores_to_the_workers():
    change = BY_NAME["threads"]
    place = here(job(num_workers=2), cores=3)
    torch.set_num_threads(3)
    assert change.propose(place, {}).value == 1
    torch.set_num_threads(8)
    place = here(job(num_workers=2), cores=8)
    assert [change.propose(place, dict.fromkeys(judged, "dropped")).value for judged in ((), (6,), (6, 4))] == [6, 4, 1]
    kept = here(build(job(num_workers=2), (Setting(change, 4),)), cores=8)
    assert change.propose(kept, {}).value == 1


# --- precision --------------------------------------------------------------------------------------------


def test_float16_with_a_scaler_learns_what_float32_does_and_skips_what_overflows():
    given, lower = job(), job()
    changed = build(lower, (Setting(BY_NAME["fp16"]),))
    check(changed)
    batch = next(iter(given.make_loader()))
    losses = [float(make_train_step(each)(batch).detach()) for each in (given, changed)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-2)
    first = (given.model[0].weight - network()[0].weight).detach().abs().max()
    assert torch.allclose(given.model[0].weight, lower.model[0].weight, atol=0.02 * float(first))
    scaler, before = changed._step_options.scaler, copy.deepcopy(lower.model.state_dict())
    scaled = scaler.get_scale()
    make_train_step(changed)([batch[0] * 1e4, batch[1]])
    assert scaler.get_scale() == scaled / 2
    assert all(torch.equal(before[key], value) for key, value in lower.model.state_dict().items())


@pytest.mark.usefixtures("ampere")
def test_a_larger_batch_and_float16_know_of_the_autocast_beneath():
    lower = build(job(), (Setting(BY_NAME["autocast"]),))
    assert "already" in BY_NAME["fp16"].why_not(here(lower, CUDA))
    assert "already" in BY_NAME["autocast"].why_not(here(lower, CUDA))
    assert BY_NAME["fp16"].why_not(here(job(), CUDA)) is None
    assert BY_NAME["batch_size"].propose(here(lower), {}).value == 16


@pytest.mark.parametrize(
    ("name", "capability", "hip", "why"),
    [
        ("autocast", (7, 5), None, "this device does not compute in bfloat16"),
        ("autocast", (7, 5), "6.2", None),
        ("autocast", (8, 0), None, None),
        ("tf32", (7, 5), None, "this device does not compute in TF32"),
    ],
)
def test_a_precision_is_not_tried_on_devices_that_emulate_it(monkeypatch, name, capability, hip, why):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: True)
    monkeypatch.setattr(torch.version, "hip", hip)
    assert BY_NAME[name].why_not(here(job(), CUDA)) == why


# --- optimizers -------------------------------------------------------------------------------------------


def test_a_fused_optimizer_goes_on_from_the_same_state():
    given = job()
    batch = next(iter(given.make_loader()))
    make_train_step(given)(batch)
    changed = build(given, (Setting(BY_NAME["fused_optimizer"]),))
    assert changed.optimizer.param_groups[0]["fused"]
    assert not given.optimizer.param_groups[0]["fused"]
    (kept, *_), (made, *_) = (list(each.optimizer.state.values()) for each in (given, changed))
    assert torch.equal(kept["momentum_buffer"], made["momentum_buffer"])
    assert kept["momentum_buffer"] is not made["momentum_buffer"]


def test_a_fused_optimizer_goes_on_with_images_in_channels_last():
    # Guards: fused kernels walk through a weight and its state side by side, whatever their formats are.
    model = network()
    given = job(model=model, optimizer=torch.optim.AdamW(model.parameters(), lr=0.1, fused=True))
    batch = next(iter(given.make_loader()))
    make_train_step(given)(batch)
    changed = build(given, (Setting(BY_NAME["channels_last"]),))
    losses = [[float(make_train_step(each)(batch).detach()) for _ in range(3)] for each in (given, changed)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    for each, last in ((given, False), (changed, True)):
        (moments,) = (state for state in each.optimizer.state.values() if state["exp_avg"].dim() == 4)
        assert moments["exp_avg"].is_contiguous(memory_format=torch.channels_last) is last
        assert moments["exp_avg_sq"].is_contiguous(memory_format=torch.channels_last) is last


# --- compiling --------------------------------------------------------------------------------------------


@pytest.fixture
def compiled(monkeypatch):
    """A stand-in for the compiler, which counts calls."""
    made = SimpleNamespace(modes=[], calls=0, graphs=0, again=False)

    def compile_(function, mode):
        made.modes.append(mode)

        def call(*arguments, **keywords):
            made.graphs += made.again or not made.calls
            made.calls += 1
            return function(*arguments, **keywords)

        return call

    monkeypatch.setattr(torch, "compile", compile_)
    monkeypatch.setattr(compiling, "graphs_compiled", lambda: made.graphs)
    return made


def own_step(model):
    return lambda batch: model(batch[0]).sum().backward()


@pytest.mark.parametrize("whose", ["ours", "the user's"])
def test_whoever_calls_the_model_calls_it_compiled_and_only_while_it_is_tried(whose, compiled):
    given = job()
    if whose == "the user's":
        given = given.replace(train_step=own_step(given.model))
    model = given.model
    before = set(vars(model))
    assert BY_NAME["compile"].why_not(here(given)) is None
    setting = BY_NAME["compile"].propose(here(given), {})
    assert setting.label == "compile=default"
    changed = build(given, (setting,))
    batch = next(iter(given.make_loader()))
    with step_surroundings(changed) if whose != "ours" else nullcontext():
        step = make_train_step(changed)
        step(batch)
        step(batch)
    assert compiled.calls == 2
    make_train_step(given)(batch)
    assert compiled.calls == 2
    assert set(vars(model)) == before
    assert BY_NAME["compile"].propose(here(changed), {}) is None
    assert BY_NAME["compile"].propose(here(changed, CUDA), {}).value == "reduce-overhead"
    assert BY_NAME["compile"].propose(here(given, CUDA), {"default": "failed"}) is None


def test_graphs_that_are_replayed_give_their_memory_back_unless_compiled_code_is_kept(compiled, monkeypatch):
    reset = []
    monkeypatch.setattr(compiling._Watched, "has_pools", False)
    monkeypatch.setattr(torch.compiler, "reset", lambda: reset.append("reset"))
    batch = next(iter(job().make_loader()))
    default, reduced = (Setting(BY_NAME["compile"], mode) for mode in ("default", "reduce-overhead"))
    make_train_step(build(job(), (default,)))(batch)
    compiling.release_pools(())
    assert reset == []  # nothing is replayed
    make_train_step(build(job(), (reduced,)))(batch)
    compiling.release_pools((reduced,))
    assert reset == []
    compiling.release_pools(())
    compiling.release_pools(())
    assert reset == ["reset"]


def test_a_step_that_does_not_call_the_model_is_told():
    given = job(train_step=lambda batch: None)
    with pytest.raises(MeasurementError, match="does not call the compiled model"):
        make_train_step(build(given, (Setting(BY_NAME["compile"], "default"),)))(None)


def test_what_is_compiled_at_each_step_is_given_up(compiled):
    compiled.again = True
    step = make_train_step(build(job(), (Setting(BY_NAME["compile"], "default"),)))
    batch = next(iter(job().make_loader()))
    for _ in range(3):
        step(batch)
    with pytest.raises(MeasurementError, match="recompiled at each step"):
        step(batch)


# --- CUDA graphs ------------------------------------------------------------------------------------------


@pytest.fixture
def recorded(monkeypatch):
    """Batches that were recorded, and called as recorded."""
    seen = SimpleNamespace(samples=[], calls=0)

    def record(module, samples):
        assert not torch.is_autocast_cache_enabled()
        seen.samples.append([tuple(sample.shape) for sample in samples])

        def call(*tensors):
            seen.calls += 1
            return module(*tensors)

        return call

    monkeypatch.setattr(torch.cuda, "make_graphed_callables", record)
    return seen


def test_batches_of_the_first_shape_are_replayed_and_others_are_not(recorded):
    given = job()
    change = BY_NAME["cuda_graphs"]
    assert change.why_not(here(given, CUDA)) is None
    changed = build(given, (Setting(change),))
    assert next(iter(changed.model.parameters())) is next(given.model.parameters())
    step = make_train_step(changed)
    images, targets = next(iter(given.make_loader()))
    step((images, targets))
    step((images, targets))
    step((images[:3], targets[:3]))
    assert (recorded.samples, recorded.calls) == ([[(8, 3, 8, 8)]], 2)
    assert torch.is_autocast_cache_enabled()
    assert len(list(changed.model.parameters())) == len(list(given.model.parameters()))
    with pytest.raises(MeasurementError, match="other than positional tensors"):
        changed.model(x=images)
    twin = copy.deepcopy(changed.model)
    twin(images)
    assert len(recorded.samples) == 2
    assert "recorded as CUDA graphs" in BY_NAME["compile"].why_not(here(changed, CUDA))


@pytest.mark.parametrize("takes_mode", [True, False], ids=["this torch", "an older torch"])
def test_what_other_threads_ask_of_the_driver_does_not_end_a_recording(monkeypatch, takes_mode):
    modes = []

    def graph(*, capture_error_mode="global"):
        modes.append(capture_error_mode)

    def record(module, samples, **modes):
        torch.cuda.graph(**modes)
        return module

    def older(module, samples):
        return record(module, samples)

    def newer(module, samples, capture_error_mode="global"):
        return record(module, samples, capture_error_mode=capture_error_mode)

    monkeypatch.setattr(torch.cuda, "graph", graph)
    monkeypatch.setattr(torch.cuda, "make_graphed_callables", newer if takes_mode else older)
    given = job()
    build(given, (Setting(BY_NAME["cuda_graphs"]),)).model(next(iter(given.make_loader()))[0])
    assert modes == ["thread_local"]
    assert torch.cuda.graph is graph


# --- where they do not apply --------------------------------------------------------------------------------


@pytest.mark.usefixtures("ampere")
@pytest.mark.parametrize(
    ("name", "device", "fields", "why"),
    [
        ("tf32", CPU, {}, "not on a CUDA device"),
        ("cudnn_benchmark", CPU, {}, "not on a CUDA device"),
        ("cudnn_benchmark", CUDA, {"model": nn.Linear(2, 2)}, "no convolution"),
        ("fp16", CPU, {}, "not on a CUDA device"),
        ("fp16", CUDA, {"train_step": print}, "your own"),
        ("cuda_graphs", CPU, {}, "not on a CUDA device"),
        ("cuda_graphs", CUDA, {"train_step": print}, "your own"),
        ("threads", CUDA, {}, "trains on cuda"),
        ("fused_optimizer", CPU, {"optimizer": torch.optim.Rprop(network().parameters())}, "no fused implementation"),
        ("compile", CPU, {"model": print}, "has no torch.nn.Module"),
    ],
)
def test_where_a_change_does_not_apply_it_says_why(name, device, fields, why):
    assert why in BY_NAME[name].why_not(here(job(**fields), device))
