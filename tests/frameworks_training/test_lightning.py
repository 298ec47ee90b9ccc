"""Lightning modules and their data become a pipeline in one call, without `Trainer.fit`."""

import copy
import importlib
import itertools
import random

import lightning
import numpy as np
import pytest
import pytorch_lightning
import torch
from torch import nn

import bottleneck
from bottleneck.job.train_step import make_train_step
from tests.frameworks_training.lightning_jobs import (
    BATCH,
    CPU,
    make_datamodule,
    make_module,
    make_trainer,
    step_of,
    weights,
)
from tests.frameworks_training.slow_data import Rows, diagnose, make_loader, model_state, random_state


@pytest.mark.integration
@pytest.mark.parametrize(
    ("package", "workers"), [(lightning, 1), (pytorch_lightning, 0)], ids=["lightning", "old name"]
)
def test_a_slow_transform_is_found_and_everything_is_left_as_it_was(package, workers):
    module, data = make_module(package), make_datamodule(package)
    before, numbers = model_state(module), random_state()
    pipeline = bottleneck.Pipeline.from_lightning(module, data, num_workers=workers)
    assert model_state(module) == before
    assert random_state() == numbers
    diagnosis = diagnose(pipeline)
    assert diagnosis.verdict.state == "input_bound"
    assert diagnosis.verdict.bottleneck == "augment"
    assert model_state(module) == before
    assert random_state() == numbers
    assert module._trainer is None


def test_the_data_is_set_up_as_fit_does_it():
    data = make_datamodule()
    pipeline = bottleneck.Pipeline.from_lightning(make_module(), data, num_workers=0)
    assert data.calls == ("prepare_data", "setup fit")
    assert pipeline.dataset is data.rows
    assert pipeline.loader_args["batch_size"] == 2
    assert pipeline.loader_args["num_workers"] == 0
    assert pipeline.to_device is None


def test_the_modules_own_loader_is_taken_without_a_datamodule():
    module = make_module(
        setup=lambda self, stage: setattr(self, "rows", Rows()), train_dataloader=lambda self: make_loader(self.rows)
    )
    pipeline = bottleneck.Pipeline.from_lightning(module)
    assert pipeline.dataset is module.rows


@pytest.mark.parametrize(
    "made",
    [
        lambda optimizer, schedule: optimizer,
        lambda optimizer, schedule: [optimizer],
        lambda optimizer, schedule: ([optimizer], [schedule]),
        lambda optimizer, schedule: {"optimizer": optimizer, "lr_scheduler": schedule},
        lambda optimizer, schedule: {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": schedule, "interval": "step"},
        },
        lambda optimizer, schedule: ({"optimizer": optimizer},),
    ],
    ids=["optimizer", "list", "two lists", "mapping", "nested mapping", "tuple of mappings"],
)
def test_every_shape_of_configure_optimizers_trains(made):
    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        return made(optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 1))

    module = make_module(configure_optimizers=configure_optimizers)
    step, before = step_of(module), weights(module)
    step(BATCH)
    assert weights(module) != before


def test_without_an_optimizer_there_are_only_gradients():
    module = make_module(configure_optimizers=lambda self: None)
    step, before = step_of(module), weights(module)
    step(BATCH)
    assert weights(module) == before
    assert module.layers[0].weight.grad is not None


def test_of_several_optimizers_the_first_is_used_and_that_is_said():
    def configure_optimizers(self):
        return [torch.optim.SGD(self.parameters(), lr=0.0), torch.optim.Adam(self.parameters(), lr=1.0)]

    module = make_module(configure_optimizers=configure_optimizers)
    step, before = step_of(module), weights(module)
    with pytest.warns(UserWarning, match=r"gives 2 optimizers; the first, SGD, is used"):
        step(BATCH)
    assert weights(module) == before


def test_logging_does_nothing_in_the_step_and_works_again_after_it(recwarn):
    seen = []

    def training_step(self, batch, batch_idx):
        self.log("loss", 1.0)
        seen.append(vars(self)["log"])
        return self.layers(batch[0]).sum()

    module = make_module(training_step=training_step)
    step_of(module)(BATCH)
    assert len(seen) == 1
    assert "log" not in vars(module)
    assert "log_dict" not in vars(module)
    assert not [warning for warning in recwarn if "self.trainer" in str(warning.message)]


def test_logging_works_again_after_a_step_that_raised():
    def training_step(self, batch, batch_idx):
        raise ZeroDivisionError

    module = make_module(training_step=training_step)
    with pytest.raises(ZeroDivisionError):
        step_of(module)(BATCH)
    assert "log" not in vars(module)


def test_the_hooks_run_in_lightnings_order(tmp_path):
    names = (
        "on_train_batch_start", "training_step", "on_before_zero_grad", "on_before_backward", "on_after_backward",
        "on_before_optimizer_step", "on_train_batch_end",
    )  # fmt: skip
    calls = []

    def noting(name):
        def hook(self, *args, **kwargs):
            calls.append(name)
            return self.layers(args[0][0]).sum() if name == "training_step" else None

        return hook

    methods = {name: noting(name) for name in names if name != "training_step"}
    # Lightning counts the parameters of this one.
    methods["training_step"] = lambda self, batch, batch_idx: noting("training_step")(self, batch)
    step_of(make_module(**methods))(BATCH)
    ours = list(calls)
    calls.clear()
    trainer = make_trainer(tmp_path, max_steps=1)
    trainer.fit(make_module(**methods), make_loader(num_workers=0))
    assert ours == calls == list(names)


def test_the_weights_become_those_that_fit_gives(tmp_path):
    torch.manual_seed(0)
    module = make_module()
    module.layers[2].p = 0.0
    start = copy.deepcopy(module.state_dict())
    loader = make_loader(Rows(transform=torch.sin), num_workers=0, shuffle=False)
    settings = {"accumulate_grad_batches": 2, "gradient_clip_val": 0.3, "limit_train_batches": 6, "max_epochs": 1}
    step = step_of(module, loader, trainer=make_trainer(tmp_path, **settings))
    for batch in itertools.islice(loader, 6):
        step(batch)
    ours = copy.deepcopy(module.state_dict())
    module.load_state_dict(start)
    module.zero_grad()
    make_trainer(tmp_path, **settings).fit(module, loader)
    assert not torch.equal(ours["layers.0.weight"], start["layers.0.weight"])
    for name, value in module.state_dict().items():
        torch.testing.assert_close(value, ours[name])


def test_random_numbers_that_the_setup_draws_are_put_back():
    def setup(self, stage):
        self.rows, _ = torch.utils.data.random_split(Rows(), [256, 256])
        self.drawn = random.random(), np.random.rand()

    module, numbers = make_module(), random_state()
    bottleneck.Pipeline.from_lightning(module, make_datamodule(setup=setup))
    assert random_state() == numbers


def test_a_hook_may_skip_a_batch():
    module = make_module(on_train_batch_start=lambda self, batch, batch_idx: -1)
    step, before = step_of(module), weights(module)
    step(BATCH)
    assert weights(module) == before


def test_batches_are_numbered_anew_in_each_diagnosis():
    numbers = []

    def training_step(self, batch, batch_idx):
        numbers.append(batch_idx)
        return self.layers(batch[0]).sum()

    pipeline = bottleneck.Pipeline.from_lightning(make_module(training_step=training_step), make_loader())
    for _ in range(2):
        step = make_train_step(pipeline, CPU)
        step(BATCH)
        step(BATCH)
    assert numbers == [0, 1, 0, 1]


def test_a_training_step_may_take_only_the_batch_and_give_a_mapping_or_nothing():
    module = make_module(training_step=lambda self, batch: {"loss": self.layers(batch[0]).sum()})
    before = weights(module)
    step_of(module)(BATCH)
    assert weights(module) != before
    step_of(make_module(training_step=lambda self, batch: None))(BATCH)


def test_the_users_transfer_is_the_datamodules_before_the_modules():
    module = make_module(transfer_batch_to_device=lambda self, batch, device, dataloader_idx: "the module's")
    data = make_datamodule(
        on_before_batch_transfer=lambda self, batch, dataloader_idx: ("before", batch),
        transfer_batch_to_device=lambda self, batch, device, dataloader_idx: (*batch, str(device)),
    )
    assert bottleneck.Pipeline.from_lightning(module, make_loader()).to_device(0, CPU) == "the module's"
    assert bottleneck.Pipeline.from_lightning(module, data).to_device(0, CPU) == ("before", 0, "cpu")


def test_what_follows_the_transfer_is_part_of_the_step():
    got = []
    data = make_datamodule(on_after_batch_transfer=lambda self, batch, dataloader_idx: (batch[0] + 5, batch[1]))

    def training_step(self, batch, batch_idx):
        got.append(batch[0].max().item())

    pipeline = bottleneck.Pipeline.from_lightning(make_module(training_step=training_step), data)
    assert pipeline.to_device is None
    make_train_step(pipeline, CPU)(BATCH)
    assert got == [(BATCH[0] + 5).max().item()]


def test_setup_and_configure_model_run_before_the_optimizer_is_made():
    calls = []
    module = make_module(
        setup=lambda self, stage: calls.append(stage),
        configure_model=lambda self: calls.append("configure_model"),
        configure_optimizers=lambda self: calls.append("configure_optimizers"),
    )
    step_of(module)(BATCH)
    assert calls == ["fit", "configure_model", "configure_optimizers"]


def test_an_own_optimizer_and_an_own_step_take_the_place_of_the_modules():
    def configure_optimizers(self):
        raise AssertionError

    module = make_module(configure_optimizers=configure_optimizers, automatic_optimization=False)
    pipeline = bottleneck.Pipeline.from_lightning(module, make_loader(), train_step=len)
    assert make_train_step(pipeline, CPU)(BATCH) == 2
    module = make_module(configure_optimizers=configure_optimizers)
    step = step_of(module, optimizer=torch.optim.SGD(module.parameters(), lr=0.1))
    before = weights(module)
    step(BATCH)
    assert weights(module) != before


def combined(package):
    CombinedLoader = importlib.import_module(
        "lightning.pytorch.utilities" if package is lightning else "pytorch_lightning.utilities"
    ).CombinedLoader
    return CombinedLoader({"a": make_loader(), "b": make_loader()}, "min_size")


@pytest.mark.parametrize(
    ("module", "data", "said"),
    [
        (nn.Linear(1, 1), None, "needs a LightningModule, not a Linear. Write Pipeline.from_lightning("),
        (None, None, "needs a LightningModule, not None."),
        (make_module(), None, r"Net has no train_dataloader(). Write Pipeline.from_lightning(module, datamodule)"),
        (make_module(), Rows(), "datamodule is a Rows, neither a LightningDataModule nor a DataLoader."),
        (make_module(), [make_loader(), make_loader()], "datamodule gives 2 loaders at once, and a diagnosis looks at"),
        (make_module(), combined(lightning), "gives 2 loaders at once"),
        (make_module(pytorch_lightning), combined(pytorch_lightning), "gives 2 loaders at once"),
        (
            make_module(),
            make_datamodule(train_dataloader=lambda self: {"a": make_loader()}),
            "Data.train_dataloader() gives 1 loaders at once",
        ),
        (make_module(), make_datamodule(train_dataloader=lambda self: Rows()), "gives a Rows, not a torch.utils.data"),
        (
            make_module(),
            make_datamodule(setup=lambda self, stage: 1 / 0),
            "Data.setup('fit') raised ZeroDivisionError: division by zero.",
        ),
        (
            make_module(automatic_optimization=False),
            make_loader(),
            "Net optimizes by hand (automatic_optimization is False), which takes a Trainer that is running. Write",
        ),
        (
            make_module(training_step=lambda self, dataloader_iter: None),
            make_loader(),
            "takes its batches by itself, from dataloader_iter.",
        ),
    ],
    ids=range(12),
)
def test_what_cannot_be_described_is_refused_in_one_sentence(module, data, said):
    with pytest.raises(bottleneck.PipelineError) as refusal:
        bottleneck.Pipeline.from_lightning(module, data)
    assert said in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert refusal.value.remedy


def test_ranks_whose_gradients_only_fit_shares_are_refused(monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 4)
    with pytest.raises(bottleneck.PipelineError, match=r"4 ranks, whose gradients only Trainer.fit shares"):
        bottleneck.Pipeline.from_lightning(make_module(), make_loader())
    assert bottleneck.Pipeline.from_lightning(make_module(), make_loader(), train_step=len).train_step is len
