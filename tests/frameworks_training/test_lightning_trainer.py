"""What a Lightning Trainer says about the job is part of its pipeline."""

import itertools

import pytest
import torch
from torch import nn

import bottleneck
from tests.frameworks_training.lightning_jobs import BATCH, make_module, make_trainer, step_of, weights
from tests.frameworks_training.slow_data import make_loader, model_state


def test_precision_and_clipping_are_the_trainers(tmp_path):
    kinds = []

    def training_step(self, batch, batch_idx):
        hidden = self.layers[0](batch[0])
        kinds.append(hidden.dtype)
        return 1e3 * hidden.float().sum()

    module = make_module(
        training_step=training_step,
        configure_optimizers=lambda self: torch.optim.SGD(self.parameters(), lr=1.0),
        on_train_batch_start=lambda self, batch, batch_idx: kinds.append(self.trainer.max_steps),
    )
    trainer = make_trainer(tmp_path, precision="bf16-mixed", gradient_clip_val=0.01, max_steps=7)
    before = torch.cat([p.detach().flatten() for p in module.parameters()])
    step_of(module, trainer=trainer)(BATCH)
    after = torch.cat([p.detach().flatten() for p in module.parameters()])
    assert kinds == [7, torch.bfloat16]
    assert (after - before).norm().item() == pytest.approx(0.01, rel=0.02)
    assert module._trainer is None


def test_the_optimizer_steps_as_often_as_the_trainer_says(tmp_path):
    module = make_module()
    step = step_of(module, trainer=make_trainer(tmp_path, accumulate_grad_batches=3))
    seen = [weights(module)]
    for _ in range(6):
        step(BATCH)
        seen.append(weights(module))
    assert [a != b for a, b in itertools.pairwise(seen)] == [False, False, True, False, False, True]


@pytest.mark.integration
def test_the_trainer_is_left_as_it_was(tmp_path):
    module, trainer = make_module(), make_trainer(tmp_path, precision="bf16-mixed")
    held = {name: id(value) for name, value in vars(trainer).items()}
    before = model_state(module)
    pipeline = bottleneck.Pipeline.from_lightning(module, make_loader(num_workers=0), trainer=trainer)
    bottleneck.diagnose(pipeline, quick=True, budget="4s")
    assert {name: id(value) for name, value in vars(trainer).items()} == held
    assert trainer.global_step == 0
    assert model_state(module) == before


def test_a_trainer_of_another_kind_is_refused():
    with pytest.raises(bottleneck.PipelineError, match=r"trainer is a Linear, not Lightning's Trainer. Write Pipeline"):
        bottleneck.Pipeline.from_lightning(make_module(), make_loader(), trainer=nn.Linear(1, 1))


def test_a_module_that_needs_its_trainer_for_the_optimizer_is_told_what_to_give():
    module = make_module(configure_optimizers=lambda self: self.trainer.estimated_stepping_batches)
    with pytest.raises(bottleneck.PipelineError, match=r"optimizers\(\) raised RuntimeError.*optimizer=torch"):
        step_of(module)(BATCH)
