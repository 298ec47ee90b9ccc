from types import SimpleNamespace

import pytest
import torch
from torch import nn

from bottleneck.errors import PipelineError
from bottleneck.job.pipeline import Pipeline
from bottleneck.job.step import make_train_step, model_device

CPU = torch.device("cpu")
INPUTS, TARGETS = torch.ones(4, 3), torch.zeros(4, 2)


class Net(nn.Module):
    """Returns its output, or its loss in one of the usual forms."""

    def __init__(self, form="output"):
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.form = form

    def forward(self, x, labels=None):
        output = self.layer(x)
        loss = output.sum()
        forms = {
            "output": output,
            "loss": loss,
            "mapping": {"loss": loss, "logits": output},
            "object": SimpleNamespace(loss=loss, logits=output),
            "tuple": (loss, output),
            "nothing": None,
            "other mapping": {"logits": output},
        }
        return forms[self.form]


def step_of(model, **fields):
    return make_train_step(Pipeline(dataset=[1], model=model, **fields))


def squared(output, target):
    return ((output - target) ** 2).mean()


def test_the_users_own_step_replaces_everything():
    step = make_train_step(Pipeline(dataset=[1], model=Net(), train_step=lambda batch: ("mine", batch)))
    assert step("batch") == ("mine", "batch")


def test_the_default_step_trains_as_a_loop_written_by_hand():
    torch.manual_seed(0)
    model = Net()
    twin = Net()
    twin.load_state_dict(model.state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    own = torch.optim.SGD(twin.parameters(), lr=0.1, momentum=0.9)
    step = step_of(model, loss_fn=squared, optimizer=optimizer)
    for _ in range(3):
        loss = step((INPUTS, TARGETS))
        own_loss = squared(twin(INPUTS), TARGETS)
        own.zero_grad(set_to_none=True)
        own_loss.backward()
        own.step()
        assert torch.equal(loss, own_loss)
    assert torch.equal(model.layer.weight, twin.layer.weight)
    assert not torch.equal(model.layer.weight, Net().layer.weight)


def test_without_an_optimizer_gradients_do_not_pile_up_and_nothing_is_updated():
    model = Net()
    weight = model.layer.weight.detach().clone()
    step = step_of(model, loss_fn=squared)
    step((INPUTS, TARGETS))
    first = model.layer.weight.grad.clone()
    step((INPUTS, TARGETS))
    assert torch.equal(model.layer.weight.grad, first)
    assert torch.equal(model.layer.weight, weight)


@pytest.mark.parametrize("form", ["loss", "mapping", "object", "tuple"])
def test_without_a_loss_fn_the_model_returns_its_loss(form):
    model = Net(form)
    loss = step_of(model)({"x": INPUTS, "labels": TARGETS})
    assert loss.ndim == 0
    assert model.layer.weight.grad is not None


@pytest.mark.parametrize(
    "batch",
    [
        (INPUTS, TARGETS),
        [INPUTS, TARGETS],
        ({"x": INPUTS}, TARGETS),
        {"x": INPUTS, "labels": TARGETS},
        {"x": INPUTS, "target": TARGETS},
    ],
)
def test_batches_with_inputs_and_targets(batch):
    loss = step_of(Net(), loss_fn=squared)(batch)
    assert loss.ndim == 0


@pytest.mark.parametrize("batch", [INPUTS, [INPUTS], (INPUTS, TARGETS), {"x": INPUTS}])
def test_batches_for_a_model_with_its_own_loss(batch):
    assert step_of(Net("loss"))(batch).ndim == 0


@pytest.mark.parametrize(
    ("batch", "shape"),
    [
        (INPUTS, r"float32 \[4, 3\]"),
        ((INPUTS, TARGETS, TARGETS), r"\(float32 \[4, 3\], float32 \[4, 2\], float32 \[4, 2\]\)"),
        ({"x": INPUTS, "extra": TARGETS}, r"\{x: float32 \[4, 3\], extra: float32 \[4, 2\]\}"),
        (None, "None"),
        (SimpleNamespace(x=1), "SimpleNamespace"),
    ],
)
def test_a_batch_that_is_not_understood_is_shown(batch, shape):
    with pytest.raises(PipelineError, match=f"{shape}.*train_step"):
        step_of(Net(), loss_fn=squared)(batch)


def test_a_model_with_its_own_loss_refuses_an_object_as_batch():
    with pytest.raises(PipelineError, match=r"SimpleNamespace.*train_step"):
        step_of(Net("loss"))(SimpleNamespace(x=INPUTS))


def test_a_model_that_does_not_take_the_whole_batch_is_refused_as_one_without_its_loss():
    with pytest.raises(PipelineError, match=r"Without loss_fn the model gets the whole batch.*Pass loss_fn="):
        step_of(nn.Sequential(nn.Linear(3, 2)))((INPUTS, TARGETS))


def test_a_type_error_inside_the_model_stays_what_it_is():
    class Broken(nn.Linear):
        def forward(self, inputs, target):
            raise TypeError("mine")

    with pytest.raises(TypeError, match="mine"):
        step_of(Broken(3, 2))((INPUTS, TARGETS))


def test_a_mapping_whose_keys_are_no_names_is_refused():
    with pytest.raises(PipelineError, match=r"by keyword.*\{0: float32"):
        step_of(Net("loss"))({0: INPUTS})


@pytest.mark.parametrize(
    ("model", "fields", "words"),
    [
        (Net("nothing"), {}, "must return its loss, and it returned None"),
        (Net("other mapping"), {}, r"\{logits: float32.*loss_fn=nn.CrossEntropyLoss"),
        (Net("output"), {}, r"one number, and gave float32 \[4, 2\].*loss_fn="),
        (Net(), {"loss_fn": nn.MSELoss(reduction="none")}, "loss_fn must give one number.*reduction='mean'"),
        (Net(), {"loss_fn": lambda output, target: 0.5}, "as a tensor, and gave float"),
        (Net().requires_grad_(False), {"loss_fn": squared}, "no parameter that requires a gradient"),
    ],
)
def test_a_loss_that_cannot_be_trained_on_is_refused(model, fields, words):
    with pytest.raises(PipelineError, match=words):
        step_of(model, **fields)((INPUTS, TARGETS))


def test_an_optimizer_without_set_to_none_is_used_as_it_is():
    class Plain:
        calls = ()

        def zero_grad(self):
            self.calls += ("zero_grad",)

        def step(self):
            self.calls += ("step",)

    optimizer = Plain()
    step_of(Net(), loss_fn=squared, optimizer=optimizer)((INPUTS, TARGETS))
    assert optimizer.calls == ("zero_grad", "step")


def test_the_models_device():
    assert model_device(Net()) == CPU
    assert model_device(Net().to("meta")) == torch.device("meta")
    assert model_device(nn.ReLU()) is None
    assert model_device(print) is None
    assert model_device(nn.Sequential(Net(), Net().to("meta"))) is None
