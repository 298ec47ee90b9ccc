"""Variants of a job that take turns: in what order they begin, what they leave behind, and what memory is theirs."""

import contextlib
import gc
import weakref

import pytest
import torch
from torch import nn

from bottleneck.measure.device import DeviceMemory
from bottleneck.tuner.change import Setting, build
from bottleneck.tuner.lane import open_lane
from bottleneck.tuner.lanes import Lanes
from tests.support.sessions import known_helpers, workers_left
from tests.tuning.jobs import BY_NAME, Pictures, pictures_job


class Noted(Pictures):
    """Notes each sample that is made."""

    def __init__(self, transform, notes):
        super().__init__(transform)
        self.notes = notes

    def __getitem__(self, index):
        self.notes.append("load")
        return super().__getitem__(index)


@pytest.mark.parametrize("whole_epochs", [False, True], ids=["running", "whole epochs"])
def test_nothing_is_loaded_while_the_first_steps_run(whole_epochs):
    # Guards: the first step may record CUDA graphs, and to pin a batch at that time is an error of both.
    notes, given = [], pictures_job(num_workers=0)

    def step(batch):
        return notes.append("step")

    given = given.replace(dataset=Noted(given.dataset.transform, notes), train_step=step)
    open_lane(given, 60.0, whole_epochs=whole_epochs).close()
    assert notes[-3:] == ["step"] * 3
    assert "load" in notes[:-3]
    assert "step" not in notes[:-3]


@pytest.mark.parametrize("whole_epochs", [False, True], ids=["running", "whole epochs"])
def test_a_closed_variant_gives_the_memory_of_its_model_back_at_once(whole_epochs):
    given = pictures_job(num_workers=0)
    changed = build(given, (Setting(BY_NAME["channels_last"]),))
    weight = weakref.ref(next(changed.model.parameters()))
    lane = open_lane(changed, 60.0, whole_epochs=whole_epochs)
    del changed
    gc.disable()
    try:
        lane.close()
        assert weight() is None
    finally:
        gc.enable()


def test_a_variant_that_ruins_the_weights_ruins_those_of_no_other():
    given = pictures_job(num_workers=0)
    loss = given.loss_fn
    ruined = given.replace(loss_fn=lambda output, target: loss(output, target) * float("nan"))
    with contextlib.ExitStack() as closing:
        lanes = [open_lane(each, 60.0, whole_epochs=False) for each in (given, ruined)]
        for lane in lanes:
            closing.callback(lane.close)
        for number in range(2):
            for lane in lanes:
                lane.block(number)
        assert [lane.loss_is_finite for lane in lanes] == [True, False]


@pytest.mark.integration
@pytest.mark.parametrize("whole_epochs", [False, True], ids=["running", "whole epochs"])
def test_a_variant_has_workers_of_its_own(whole_epochs):
    known_helpers()
    lane = open_lane(pictures_job(num_workers=2), 60.0, whole_epochs=whole_epochs)
    try:
        block = lane.block(1)
    finally:
        lane.close()
    assert block.samples >= block.batches > 0
    assert (0 < lane.waiting_share < 1) != whole_epochs
    assert not workers_left()


def test_all_lanes_are_closed_also_where_one_of_them_fails():
    closed = []

    class Failing:
        setup_s = 0.0

        def __init__(self, pipeline, budget_s, *, whole_epochs):
            pass

        def close(self):
            closed.append(self)
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

    lanes = Lanes(pictures_job(), Failing, 60.0)
    for whole_epochs in (False, True):
        lanes.open((), whole_epochs=whole_epochs)
    with pytest.raises(RuntimeError, match="illegal memory access"):
        lanes.keep()
    assert len(closed) == 2


class Counted:
    """Stands for what counts the memory of a device."""

    def __init__(self):
        self.now = self.most = 0

    def memory_allocated(self, device):
        return self.now

    def max_memory_allocated(self, device):
        return self.most

    def reset_peak_memory_stats(self, device):
        self.most = self.now

    def take(self, nbytes):
        self.now += nbytes
        self.most = max(self.most, self.now)


class OnCuda(torch.Tensor):
    """Says that it lies on a CUDA device."""

    device = torch.device("cuda", 0)


@pytest.mark.parametrize("names_model", [True, False])
def test_the_memory_of_a_variant_is_that_of_its_weights_and_of_what_a_step_takes(names_model):
    model = nn.Linear(10, 10, bias=False)
    model.weight = nn.Parameter(model.weight.detach().as_subclass(OnCuda))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer.state[model.weight]["momentum_buffer"] = torch.zeros(10, 10).as_subclass(OnCuda)
    counted = Counted()
    counted.take(2 * 400 + 5000)  # the weights, the momentum, and 5000 of another variant
    memory = DeviceMemory(torch.device("cuda", 0), model if names_model else None, optimizer, counted)
    others = 0 if names_model else 5000
    memory.begin()
    counted.take(300)
    counted.take(-300)
    assert memory.peak_bytes() == 800 + 300 + others
    memory.begin()
    counted.take(100)
    counted.take(-100)
    assert memory.peak_bytes() == 800 + 300 + others
    assert DeviceMemory(torch.device("cpu"), model, optimizer, counted).peak_bytes() is None


# --- CUDA graphs ------------------------------------------------------------------------------------------


WORKSPACE_BYTES = 65 << 20


class FakeCuda:
    """Stands for a device on whose streams a library keeps a workspace, from its first product on each of them."""

    def __init__(self, notes):
        self.notes, self.has_workspace, self.present = notes, {"the usual"}, "the usual"
        self.graphs, self.cleared_with_graphs = 0, False

    @property
    def kept_bytes(self):
        return WORKSPACE_BYTES * (len(self.has_workspace) - 1)

    def clear(self):
        self.cleared_with_graphs |= self.graphs > 0  # which hold the address of a workspace

    @contextlib.contextmanager
    def stream(self, stream):
        before, self.present = self.present, stream
        yield
        self.present = before

    @contextlib.contextmanager
    def graph(self, graph, pool=None, stream=None, capture_error_mode="global", **_):
        self.notes.append(f"{capture_error_mode} capture")
        with self.stream("of graphs" if stream is None else stream):
            yield

    def install(self, monkeypatch):
        class Graph:
            def __init__(graph):
                self.graphs += 1

            def __del__(graph):
                self.graphs -= 1

            def replay(graph):
                self.notes.append("replay")

        class Stream:
            def __init__(stream, device=None):
                pass

        replaced = {"Stream": Stream, "stream": self.stream, "graph": self.graph, "CUDAGraph": Graph}
        replaced |= {"synchronize": lambda *_: None, "current_device": lambda: 0}
        for name, value in replaced.items():
            monkeypatch.setattr(torch.cuda, name, value)
        monkeypatch.setattr(torch.cuda.graphs, "graph_pool_handle", lambda: (0, 1))
        monkeypatch.setattr(torch._C, "_cuda_clearCublasWorkspaces", self.clear, raising=False)


class Product(nn.Module):
    """Computes on the present stream."""

    def __init__(self, cuda):
        super().__init__()
        self.cuda = cuda

    def forward(self, tensor):
        self.cuda.has_workspace.add(self.cuda.present)
        return tensor

    def __deepcopy__(self, memo):
        return Product(self.cuda)


def test_graphs_of_several_variants_share_one_workspace(monkeypatch):
    # Guards: 65 MiB of an H100 that each variant with CUDA graphs left behind, for a stream that it alone had used.
    notes = []
    cuda = FakeCuda(notes)
    cuda.install(monkeypatch)
    stream, given = torch.cuda.Stream, pictures_job(num_workers=0)
    model = nn.Sequential(given.model, Product(cuda))
    given = given.replace(dataset=Noted(given.dataset.transform, notes), model=model)
    with contextlib.ExitStack() as closing:
        for _ in range(3):
            notes.clear()
            lane = open_lane(build(given, (Setting(BY_NAME["cuda_graphs"]),)), 60.0, whole_epochs=False)
            closing.callback(lane.close)
            at = notes.index("thread_local capture")
            assert "load" not in notes[at : notes.index("replay", at)]
    assert cuda.kept_bytes <= WORKSPACE_BYTES
    assert not cuda.cleared_with_graphs
    assert torch.cuda.Stream is stream


def test_a_step_by_itself_takes_time_and_the_next_block_is_as_it_would_be():
    lane = open_lane(pictures_job(num_workers=0), 60.0, whole_epochs=False)
    try:
        assert lane.bare_step() > 0
        block = lane.block(1)
        assert block.samples == 4 * block.batches > 0
        assert lane.loss_is_finite
    finally:
        lane.close()
