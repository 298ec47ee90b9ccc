"""The step of the optimizer for all parameters together: one fused kernel, or lists of tensors (foreach)."""

from __future__ import annotations

import copy
import inspect
from functools import partial
from typing import Any

from bottleneck.job.pipeline import Pipeline
from bottleneck.tuning.change import Change, Here
from bottleneck.tuning.steps import no_default_step

_SOURCE = "https://docs.pytorch.org/docs/stable/optim.html"


def _why_not(name: str, here: Here) -> str | None:
    optimizer = here.pipeline.optimizer
    if here.pipeline.train_step is not None:
        return no_default_step(here)
    if optimizer is None:
        return "the job has no optimizer"
    kind = type(optimizer)
    if not (kind.__module__.startswith("torch.optim") and name in inspect.signature(kind).parameters):
        return f"{kind.__name__} has no {name} implementation"
    return f"the optimizer is {name} already" if optimizer.defaults.get(name) else None


def _why_not_foreach(here: Here) -> str | None:
    if (why := _why_not("foreach", here)) is not None:
        return why
    defaults = here.pipeline.optimizer.defaults
    if defaults.get("fused"):
        return "the optimizer is fused, which does more"
    if here.device.type == "cuda" and defaults["foreach"] is None:
        return "PyTorch takes the foreach implementation on a CUDA device by itself"
    return None


def _made(chosen: dict[str, Any], pipeline: Pipeline) -> Pipeline:
    """With an optimizer on the same parameters and from the same state."""
    given = pipeline.optimizer
    chosen = {name: value for name, value in chosen.items() if name in given.defaults}
    optimizer = type(given)([{**group, **chosen} for group in given.param_groups], lr=given.defaults["lr"], **chosen)
    state = given.state_dict()
    state["param_groups"] = [{**group, **chosen} for group in state["param_groups"]]
    optimizer.load_state_dict(copy.deepcopy(state))
    return pipeline.replace(optimizer=optimizer)


CHANGES = (
    Change(
        "fused_optimizer", partial(_made, {"fused": True, "foreach": None}), on="step", alters="nothing",
        line="torch.optim.{optimizer}(..., fused=True)",
        why_not=partial(_why_not, "fused"), source=_SOURCE,
    ),
    Change(
        "foreach_optimizer", partial(_made, {"foreach": True, "fused": None}), on="step", alters="nothing",
        line="torch.optim.{optimizer}(..., foreach=True)", why_not=_why_not_foreach,
        source=_SOURCE,
    ),
)  # fmt: skip
