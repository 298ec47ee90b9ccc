"""What `accelerator.prepare` gave back becomes a pipeline in one call."""

import itertools
from contextlib import nullcontext

import pytest
import torch
from accelerate import Accelerator as Accelerate
from accelerate.data_loader import DataLoaderDispatcher
from accelerate.state import AcceleratorState, GradientState, PartialState
from torch import nn

import bottleneck
from bottleneck.job.train_step import make_train_step
from tests.frameworks_training.slow_data import (
    FEATURES,
    Accelerator,
    Rows,
    diagnose,
    make_loader,
    model_state,
    random_state,
    tensors,
)

CPU = torch.device("cpu")
BATCH = (torch.arange(4.0 * FEATURES).view(4, FEATURES).sin(), torch.tensor([0, 1, 0, 1]))
LOSS = nn.CrossEntropyLoss()


@pytest.fixture(autouse=True)
def accelerate_is_new():
    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state()


def prepare(loader=None, **arguments):
    """Accelerator, model, optimizer and loader, as a training script has them."""
    accelerator = Accelerate(cpu=True, **arguments)
    model = nn.Sequential(Accelerator(), nn.Linear(FEATURES, 4), nn.Dropout(0.1), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return accelerator, *accelerator.prepare(model, optimizer, loader or make_loader())


def held_by(accelerator):
    lists = {name: list(value) for name, value in vars(accelerator).items() if isinstance(value, list)}
    return lists, {name: id(value) for name, value in vars(accelerator).items()}


@pytest.mark.integration
@pytest.mark.parametrize(("precision", "workers"), [("no", 1), ("bf16", 0)])
def test_a_slow_transform_is_found_and_everything_is_left_as_it_was(precision, workers):
    job = prepare(make_loader(num_workers=workers), mixed_precision=precision)
    accelerator, model, optimizer, _ = job
    make_train_step(bottleneck.Pipeline.from_accelerate(*job, loss_fn=LOSS), CPU)(BATCH)
    state, numbers = (model_state(model), tensors(optimizer.state_dict()), held_by(accelerator)), random_state()
    pipeline = bottleneck.Pipeline.from_accelerate(*job, loss_fn=LOSS)
    diagnosis = diagnose(pipeline)
    assert diagnosis.verdict.state == "input_bound"
    assert diagnosis.verdict.bottleneck == "augment"
    assert (model_state(model), tensors(optimizer.state_dict()), held_by(accelerator)) == state
    assert random_state() == numbers


def test_the_users_own_loader_is_unwrapped():
    loader = make_loader()
    job = prepare(loader)
    pipeline = bottleneck.Pipeline.from_accelerate(*job, loss_fn=LOSS)
    assert type(pipeline.loader) is torch.utils.data.DataLoader
    assert pipeline.dataset is loader.dataset
    assert pipeline.loader_args["batch_size"] == loader.batch_size
    assert pipeline.loader_args["sampler"] is loader.sampler
    assert pipeline.device == CPU
    assert pipeline.replace(batch_size=8).loader_args["batch_size"] == 8
    assert bottleneck.Pipeline.from_accelerate(*job[:3], loader, batch_size=4).loader_args["batch_size"] == 4


def test_batches_of_the_users_own_sampler_are_kept():
    batches = [[0, 1], [2, 3, 4]]
    job = prepare(torch.utils.data.DataLoader(Rows(), batch_sampler=batches))
    pipeline = bottleneck.Pipeline.from_accelerate(*job, loss_fn=LOSS)
    assert list(pipeline.loader_args["batch_sampler"]) == batches


def test_the_backward_is_the_accelerators():
    accelerator, model, optimizer, loader = prepare()
    losses = []
    accelerator.backward = lambda loss: (losses.append(loss.item()), loss.backward())
    step = make_train_step(
        bottleneck.Pipeline.from_accelerate(accelerator, model, optimizer, loader, loss_fn=LOSS), CPU
    )
    before = tensors(dict(model.state_dict()))
    assert losses == [step(BATCH).item()]
    assert tensors(dict(model.state_dict())) != before


def test_gradients_are_gathered_as_often_as_the_accelerator_says(monkeypatch):
    job = prepare(gradient_accumulation_steps=3)
    unshared = []
    monkeypatch.setattr(job[0], "no_sync", lambda model: unshared.append(model) or nullcontext())
    step = make_train_step(bottleneck.Pipeline.from_accelerate(*job, loss_fn=LOSS), CPU)
    weights = [tensors(dict(job[1].state_dict()))]
    for _ in range(6):
        step(BATCH)
        weights.append(tensors(dict(job[1].state_dict())))
    changed = [left != right for left, right in itertools.pairwise(weights)]
    assert changed == [False, False, True, False, False, True]
    assert unshared == [job[1]] * 4  # ranks share gradients with every third batch


def test_an_own_train_step_takes_the_place_of_all_that():
    pipeline = bottleneck.Pipeline.from_accelerate(*prepare(), train_step=len)
    assert make_train_step(pipeline, CPU)(BATCH) == 2


def test_another_device_than_the_accelerators_is_refused():
    step = make_train_step(bottleneck.Pipeline.from_accelerate(*prepare(), loss_fn=LOSS), torch.device("cuda"))
    with pytest.raises(bottleneck.PipelineError, match=r"trains on cpu, not on cuda. Choose with Accelerator"):
        step(BATCH)


def test_what_cannot_be_described_is_refused_in_one_sentence():
    accelerator, model, optimizer, loader = prepare()
    dispatched = object.__new__(DataLoaderDispatcher)
    refused = [
        ((model, optimizer, loader, accelerator), "needs an accelerate.Accelerator first, not a Sequential. Write Pip"),
        (
            (accelerator, optimizer, model, loader),
            "model is a AcceleratedOptimizer, not a torch Module. In this order:",
        ),
        ((accelerator, model, loader, optimizer), "optimizer is a DataLoaderShard, not a torch Optimizer."),
        ((accelerator, model, optimizer, Rows()), "loader gives a Rows, not a torch.utils.data.DataLoader."),
        ((accelerator, model, optimizer, [loader, loader]), "loader gives 2 loaders at once, and a diagnosis looks at"),
        ((accelerator, model, optimizer, dispatched), "One process loads the batches of all ranks (dispatch_batches)"),
    ]
    for arguments, said in refused:
        with pytest.raises(bottleneck.PipelineError) as refusal:
            bottleneck.Pipeline.from_accelerate(*arguments)
        assert said in str(refusal.value)
        assert "\n" not in str(refusal.value)
