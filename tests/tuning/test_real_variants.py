"""The real variant of each change that a CPU can run: it is built, has workers of its own, trains, and learns as well.

What decides between them is tested with lanes in invented time.
"""

import contextlib

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from bottleneck.job.step import make_train_step, make_transfer
from bottleneck.results.evidence import Payload
from bottleneck.tuning.change import build
from bottleneck.tuning.lane import open_lane
from tests.tuning.jobs import BY_NAME, CPU, here, pictures_job, table_job
from tests.tuning.test_changes import samples_job, samples_payload

pytestmark = pytest.mark.integration

OF_CUDA = {"pin_memory", "tf32", "cudnn_benchmark", "fp16", "cuda_graphs"}


class ReadsTwo(nn.Module):
    """Reads the rows and the floats of a sample, and not its image."""

    def __init__(self):
        super().__init__()
        self.rows, self.floats = nn.Linear(64, 1), nn.Linear(64, 1)

    def forward(self, rows, floats, image):
        return self.rows(rows).mean(1) + self.floats(floats.float()).mean(1)


def samples():
    torch.manual_seed(0)
    model = ReadsTwo()
    loss = nn.L1Loss()
    return samples_job(
        model=model, loss_fn=lambda output, target: loss(output.squeeze(1), target.float()),
        optimizer=torch.optim.Adam(model.parameters()),
    )  # fmt: skip


def products():
    """The compiler makes nothing of it for which a C++ compiler would be needed, and run for half a minute."""
    torch.manual_seed(0)
    return pictures_job(model=nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 4, bias=False)))


def table():
    return table_job(TensorDataset(torch.rand(256, 3), torch.arange(256) % 2), num_workers=1)


JOBS = {
    "start_method": lambda: pictures_job(num_workers=1, multiprocessing_context="spawn"),
    "whole_batches": table, "smaller_floats": samples, "one_hot": samples, "leave_out": samples,
    "compile": products, "num_workers": lambda: pictures_job(num_workers=0),
}  # fmt: skip
"""The others are tried on pictures, with two workers."""


def place_of(name):
    torch.manual_seed(0)
    given = JOBS.get(name, lambda: pictures_job(num_workers=2))()
    payload = samples_payload() if JOBS.get(name) is samples else Payload()
    return here(given, start_s=1.0, epoch_s=5.0, payload=payload)


@pytest.fixture(autouse=True)
def threads(request):
    given = torch.get_num_threads()
    torch.set_num_threads(2 if "[threads]" in request.node.name else 1)
    yield
    torch.set_num_threads(given)


def test_a_variant_that_ruins_the_weights_ruins_those_of_no_other():
    given = pictures_job(num_workers=0)
    loss = given.loss_fn
    lanes = [
        open_lane(given.replace(loss_fn=each), 60.0, whole_epochs=False)
        for each in (loss, lambda output, target: loss(output, target) * float("nan"))
    ]
    try:
        for number in range(2):
            for lane in lanes:
                lane.block(number)
        assert [lane.loss_is_finite for lane in lanes] == [True, False]
    finally:
        for lane in lanes:
            lane.close()


def losses_of(pipeline):
    """Of some steps on the same samples, made in this process with the same random numbers."""
    loader, step, move = pipeline.make_loader(), make_train_step(pipeline), make_transfer(pipeline, CPU, False)
    losses, dataset = [], loader.dataset
    for number in range(5):
        torch.manual_seed(number)
        indices = range(number * loader.batch_size, (number + 1) * loader.batch_size)
        fetch = getattr(dataset, "__getitems__", lambda wanted: [dataset[index] for index in wanted])
        losses.append(step(move(loader.collate_fn(fetch(list(indices))))))
    return [float(loss.detach()) for loss in losses]


@pytest.fixture(autouse=True)
def nothing_of_the_compiler_stays(monkeypatch):
    """Its progress bars have a thread that outlives them."""
    with contextlib.suppress(ImportError):
        import tqdm

        monkeypatch.setattr(tqdm.tqdm, "monitor_interval", 0)
    yield
    torch.compiler.reset()


@pytest.mark.parametrize("name", [name for name in BY_NAME if name not in OF_CUDA])
def test_the_variant_trains_with_workers_of_its_own_and_learns_as_well(name):
    change, place = BY_NAME[name], place_of(name)
    assert change.why_not(place) is None
    setting = change.propose(place, {})
    changed = build(place.pipeline, (setting,))
    lane = open_lane(changed, 60.0, whole_epochs=change.whole_epochs)
    try:
        block = lane.block(1)
    finally:
        lane.close()
    assert block.samples >= block.batches > 0
    assert lane.loss_is_finite
    if name == "batch_size":  # other batches, and so other losses
        return
    given, other = place_of(name).pipeline, build(place_of(name).pipeline, (setting,))
    assert losses_of(other) == pytest.approx(losses_of(given), rel=1e-3 if change.alters != "numbers" else 0.05)
