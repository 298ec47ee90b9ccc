"""A Hugging Face Trainer becomes a pipeline in one call, without `trainer.train()`."""

import itertools
from contextlib import nullcontext

import lightning
import pytest
import torch
from accelerate.data_loader import DataLoaderDispatcher
from torch import nn
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

import bottleneck
from bottleneck.errors import MeasurementError
from bottleneck.job.train_step import make_train_step
from tests.frameworks_training.slow_data import (
    FEATURES,
    Accelerator,
    Rows,
    diagnose,
    model_state,
    random_state,
    tensors,
)

CPU = torch.device("cpu")


class SlowBert(BertForSequenceClassification):
    """A tiny one on an accelerator."""

    def __init__(self):
        sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
        super().__init__(BertConfig(vocab_size=32, max_position_embeddings=FEATURES, **sizes))
        self.accelerator = Accelerator()

    def forward(self, input_ids, labels=None):
        return super().forward(self.accelerator(input_ids), labels=labels)


@pytest.fixture
def make_trainer(tmp_path):
    def make(trainer_class=Trainer, model=None, train_dataset=None, optimizers=(None, None), **arguments):
        settings = {
            "output_dir": str(tmp_path), "use_cpu": True, "report_to": "none", "disable_tqdm": True,
            "per_device_train_batch_size": 2, "dataloader_num_workers": 1, "learning_rate": 0.1,
        }  # fmt: skip
        return trainer_class(
            model=model or SlowBert(),
            args=TrainingArguments(**settings | arguments),
            train_dataset=train_dataset or Rows(("input_ids", "labels"), dtype=torch.int64),
            optimizers=optimizers,
        )

    return make


def batch_of(trainer, pipeline):
    return pipeline.loader.collate_fn([pipeline.dataset[index] for index in (1, 2)])


def trainer_state(trainer):
    """What the Trainer and its Accelerator hold, by identity."""
    lists = {name: list(value) for name, value in vars(trainer.accelerator).items() if isinstance(value, list)}
    plain = {name: (type(value), id(value)) for name, value in vars(trainer).items()}
    plain.pop("_signature_columns")  # looked up once, when the loader is made
    return plain, lists, vars(trainer.state).copy(), len(trainer.callback_handler.callbacks)


@pytest.mark.integration
def test_a_slow_transform_is_found_and_everything_is_left_as_it_was(make_trainer):
    trainer = make_trainer(dataloader_num_workers=0)
    before, numbers, held = model_state(trainer.model), random_state(), trainer_state(trainer)
    pipeline = bottleneck.Pipeline.from_trainer(trainer)
    assert random_state() == numbers
    assert trainer_state(trainer) == held
    diagnosis = diagnose(pipeline)
    assert diagnosis.verdict.state == "input_bound"
    assert diagnosis.verdict.bottleneck == "augment"
    assert model_state(trainer.model) == before
    assert random_state() == numbers
    assert trainer_state(trainer) == held
    assert trainer.optimizer is None


@pytest.mark.integration
def test_the_state_of_an_optimizer_that_the_user_gave_is_put_back(make_trainer):
    model = SlowBert()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    model(torch.ones(2, FEATURES, dtype=torch.int64), torch.tensor([0, 1])).loss.backward()
    optimizer.step()
    before, weights = tensors(optimizer.state_dict()), model_state(model)
    trainer = make_trainer(model=model, optimizers=(optimizer, None), bf16=True)
    bottleneck.diagnose(bottleneck.Pipeline.from_trainer(trainer), budget="4s", quick=True)
    assert trainer.optimizer is optimizer
    assert tensors(optimizer.state_dict()) == before
    assert "step" not in vars(optimizer)
    assert model_state(model) == weights
    assert not trainer.accelerator._models
    assert not trainer.accelerator._optimizers


@pytest.mark.integration
def test_a_trainer_that_has_trained_can_be_diagnosed_and_trains_on(make_trainer):
    trainer = make_trainer(max_steps=2, save_strategy="no", dataloader_num_workers=0)
    trainer.train()
    before = tensors(trainer.optimizer.state_dict()), model_state(trainer.model), trainer_state(trainer)
    diagnosis = bottleneck.diagnose(bottleneck.Pipeline.from_trainer(trainer), budget="4s", quick=True)
    assert before == (tensors(trainer.optimizer.state_dict()), model_state(trainer.model), trainer_state(trainer))
    assert not [warning for warning in diagnosis.warnings if warning.id == "not-restored"]
    assert trainer.train().global_step == 2


def test_its_loader_is_the_one_that_accelerate_has_wrapped(make_trainer):
    trainer = make_trainer()
    pipeline = bottleneck.Pipeline.from_trainer(trainer, num_workers=0)
    assert pipeline.dataset is trainer.train_dataset
    assert type(pipeline.loader) is torch.utils.data.DataLoader
    assert pipeline.loader_args["num_workers"] == 0
    assert pipeline.device == CPU
    assert trainer.accelerator._dataloaders == []


def test_random_numbers_that_making_the_loader_draws_are_put_back(make_trainer):
    class Drawing(Trainer):
        def get_train_dataloader(self):
            torch.rand(1)
            return super().get_train_dataloader()

    trainer = make_trainer(Drawing)
    numbers = random_state()
    bottleneck.Pipeline.from_trainer(trainer)
    assert random_state() == numbers


def test_the_step_is_that_of_the_trainer(make_trainer):
    """The weights after two steps are those that `trainer.train()` gives."""

    class Orderly(Rows):
        def __init__(self):
            super().__init__(("input_ids", "labels"), lambda values: values, torch.int64)

        def __len__(self):
            return 4

    torch.manual_seed(0)
    model = SlowBert().eval()
    for part in model.modules():
        part.p = 0.0  # no dropout
    start = {name: value.clone() for name, value in model.state_dict().items()}
    settings = {"lr_scheduler_type": "constant", "max_steps": 2, "save_strategy": "no", "learning_rate": 0.01}
    settings |= {"optim": "sgd", "max_grad_norm": 0.1}
    trainer = make_trainer(model=model, train_dataset=Orderly(), **settings)
    pipeline = bottleneck.Pipeline.from_trainer(trainer, shuffle=False)
    step = make_train_step(pipeline, CPU)
    for batch in pipeline.make_loader():
        step(batch)
    ours = {name: value.clone() for name, value in model.state_dict().items()}
    model.load_state_dict(start)
    sequential = type("Sequential", (Trainer,), {"_get_train_sampler": lambda self, *_: None})
    make_trainer(sequential, model=model, train_dataset=Orderly(), **settings).train()
    assert any(not torch.equal(value, start[name]) for name, value in ours.items())
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, ours[name])


def test_the_optimizer_steps_as_often_as_gradient_accumulation_says(make_trainer, monkeypatch):
    trainer = make_trainer(gradient_accumulation_steps=3)
    unshared = []
    monkeypatch.setattr(trainer.accelerator, "no_sync", lambda model: unshared.append(model) or nullcontext())
    pipeline = bottleneck.Pipeline.from_trainer(trainer)
    step, batch = make_train_step(pipeline, CPU), batch_of(trainer, pipeline)
    weights = [tensors(dict(trainer.model.state_dict()))]
    for _ in range(6):
        step(batch)
        weights.append(tensors(dict(trainer.model.state_dict())))
    changed = [left != right for left, right in itertools.pairwise(weights)]
    assert changed == [False, False, True, False, False, True]
    assert len(unshared) == 4  # ranks share gradients with every third batch


def test_an_own_compute_loss_and_an_own_training_step_are_used(make_trainer):
    calls = []

    class Own(Trainer):
        def training_step(self, *arguments, **keywords):
            calls.append("training_step")
            return super().training_step(*arguments, **keywords)

        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            calls.append("compute_loss")
            return model(**inputs).logits.square().mean()

    trainer = make_trainer(Own)
    pipeline = bottleneck.Pipeline.from_trainer(trainer)
    make_train_step(pipeline, CPU)(batch_of(trainer, pipeline))
    assert calls == ["training_step", "compute_loss"]


def test_an_own_train_step_takes_its_place(make_trainer):
    pipeline = bottleneck.Pipeline.from_trainer(make_trainer(), train_step=len)
    assert make_train_step(pipeline, CPU)([1, 2]) == 2


def test_another_device_than_the_trainers_is_refused(make_trainer):
    pipeline = bottleneck.Pipeline.from_trainer(make_trainer())
    step = make_train_step(pipeline, torch.device("cuda"))
    with pytest.raises(bottleneck.PipelineError, match=r"trains on cpu, not on cuda. Choose with TrainingArguments"):
        step({})


def test_what_cannot_be_described_is_refused_in_one_sentence(make_trainer):
    trainer = make_trainer()
    trainer.train_dataset = None
    sharded = make_trainer()
    sharded.is_fsdp_enabled = True
    dispatched = make_trainer()
    dispatched.get_train_dataloader = lambda: object.__new__(DataLoaderDispatcher)
    lightnings = object.__new__(lightning.Trainer)
    refused = [
        (nn.Linear(1, 1), "needs a transformers.Trainer, not a Linear. Write Pipeline.from_trainer(trainer)."),
        (Trainer, "not the class Trainer."),
        (lightnings, "not a Trainer (is it Lightning's?). Write Pipeline.from_lightning(module, datamodule)."),
        (trainer, "raised ValueError: Trainer: training requires a train_dataset. Give the Trainer a train_dataset."),
        (sharded, "shards its model with FSDP"),
        (dispatched, "One process loads the batches of all ranks (dispatch_batches)"),
    ]
    for value, said in refused:
        with pytest.raises(bottleneck.PipelineError) as refusal:
            bottleneck.Pipeline.from_trainer(value)
        assert said in str(refusal.value)
        assert "\n" not in str(refusal.value)


def test_a_step_that_raises_is_told_as_the_jobs_own_failure(make_trainer):
    def compute_loss(self, model, inputs, **_):
        raise KeyError("logits")

    trainer = make_trainer(type("Own", (Trainer,), {"compute_loss": compute_loss}))
    held = trainer_state(trainer)
    with pytest.raises(MeasurementError, match=r"The train step raised.*logits"):
        bottleneck.diagnose(bottleneck.Pipeline.from_trainer(trainer), quick=True)
    assert trainer_state(trainer) == held
