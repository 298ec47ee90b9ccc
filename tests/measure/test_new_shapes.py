"""The cost of new shapes inside timed blocks is counted, and not taken for loading."""

import pytest
import torch
from torch.utils.data import default_collate

from bottleneck.loader import modes
from bottleneck.measure.ladder import Arm
from bottleneck.measure.options import MeasureOptions
from bottleneck.measure.rounds import new_shapes
from bottleneck.measure.rounds.new_shapes import Counts, NewShapes, make_counts, shapes_of
from tests.support.as_json import said
from tests.support.datasets import Photos
from tests.support.sessions import UNDECIDED, invented_time, pipeline_of, run

RAW, DRAINED, DEVICE = Arm(modes.ALL, "loader"), Arm(modes.ALL, "loader", coupled=False), Arm(None, "device")


class World:
    """Counters that a test lets grow."""

    def __init__(self, **options):
        self.now = Counts()
        self.shapes = NewShapes(lambda: self.now, **options)

    def block(self, arm, sizes=(8,), **growth):
        self.shapes.begin_block()
        for size in sizes:
            self.shapes.meet((torch.empty(4, size), torch.empty(4)))
        self.now = Counts(*(now + growth.get(name, 0) for name, now in zip(Counts._fields, self.now, strict=True)))
        self.shapes.end_block(arm)


def test_what_is_compiled_in_blocks_with_fresh_batches_is_reported():
    world = World()
    world.block(DEVICE, compiled=7)
    world.block(RAW, compiled=2)
    world.block(RAW)
    world.block(DRAINED, compiled=5)
    warning = world.shapes.warning()
    assert warning.id == "new-shapes-in-blocks"
    assert "In the 2 timed blocks" in warning.message
    assert "torch.compile compiled 2 graphs in 1 block." in warning.message
    assert "which it is not" in warning.message


def test_what_is_compiled_between_blocks_is_in_none():
    world = World()
    world.block(RAW)
    world.now = Counts(compiled=9)
    world.block(RAW)
    assert world.shapes.warning() is None


def test_memory_that_the_allocator_takes_again_and_again_is_reported_and_the_first_times_are_not():
    world = World()
    for _ in range(2):
        world.block(RAW, segments=3)
    assert world.shapes.warning() is None
    world.block(RAW, segments=1)
    assert "took memory from the device 7 times, in 3 blocks" in world.shapes.warning().message
    world.block(RAW, retries=1)
    assert "ran out of memory 1 time and released its cache" in world.shapes.warning().message


def test_shapes_are_new_in_a_block_once():
    world = World(tries_algorithms=True)
    world.shapes.meet((torch.empty(4, 1), torch.empty(4)))  # while warming up
    world.block(RAW, sizes=(1, 2, 3))
    world.block(DEVICE, sizes=(9,))
    world.block(RAW, sizes=(3, 4, 9))
    evidence = said(world.shapes.evidence())
    assert (evidence["shapes_new_in_blocks"], evidence["distinct_shapes"]) == (3, 5)
    assert "tried its algorithms for 3 new shapes" in world.shapes.warning().message
    world.shapes.tries_algorithms = False
    assert world.shapes.warning() is None  # a shape alone costs nothing


def test_the_shapes_of_batches_of_any_kind():
    image, label = torch.empty(2, 3), torch.empty(2)
    assert shapes_of([image, label, "name"]) == (image.shape, label.shape)
    assert shapes_of({"image": image, "name": "x"}) == (image.shape,)
    assert shapes_of(image) == image.shape
    assert shapes_of(object()) is None


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_tensors_without_a_shape_do_no_harm():
    world = World()
    world.shapes.meet(torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]))
    world.block(RAW)
    assert said(world.shapes.evidence())["blocks"] == 1


def test_the_counters_of_a_device_are_read(monkeypatch):
    stats = {"segment.all.allocated": 12, "num_alloc_retries": 3}
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda device: stats)
    monkeypatch.setattr(new_shapes, "graphs_compiled", lambda: 5)
    assert make_counts(torch.device("cuda:0"))() == Counts(5, 12, 3)
    assert make_counts(torch.device("cpu"))() == Counts(5, 0, 0)


def test_nothing_is_imported_to_count(monkeypatch):
    monkeypatch.delitem(new_shapes.sys.modules, "torch._dynamo.utils", raising=False)
    assert make_counts(torch.device("cpu"))().compiled == 0
    assert "torch._dynamo.utils" not in new_shapes.sys.modules


# --- a whole diagnosis -------------------------------------------------------------------------------------


def diagnose(lengths, told):
    clock = invented_time()
    take_time = clock.step(0.01)

    def pad(samples):
        images, labels = default_collate(samples)
        return torch.nn.functional.pad(images, (0, lengths(int(labels[0])))), labels

    torch._dynamo.reset()
    compiled = torch.compile(lambda images: images.square().sum(), backend="eager", dynamic=False)

    def step(batch):
        take_time(batch)
        return compiled(batch[0])

    pipeline = pipeline_of(Photos(), train_step=step, num_workers=0, collate_fn=pad)
    return run(pipeline, MeasureOptions(budget_s=10.0), lambda _: UNDECIDED, told.append, clock=clock).measurement


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("lengths", "told"), [(lambda first: first // 4 % 50, True), (lambda first: 0, False)])
def test_graphs_that_are_compiled_for_new_shapes_are_reported_and_those_of_warming_up_are_not(lengths, told):
    # Guards: compiling falls on raw and without X alone, and would be called loading.
    updates = []
    with torch._dynamo.config.patch(cache_size_limit=200):  # the name that versions since 2.4 share
        measurement = diagnose(lengths, updates)
    assert "compiling" in {update.phase for update in updates}
    found = [warning for warning in measurement.warnings if warning.id == "new-shapes-in-blocks"]
    assert bool(found) == told
    assert (measurement.evidence.training.compiled_in_blocks > 0) == told
