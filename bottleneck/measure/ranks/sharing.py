"""The sharing of gradients between ranks, and how to leave it out of a step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from bottleneck.measure.preserve.restoration import Notes
from bottleneck.measure.preserve.search import Search
from bottleneck.measure.preserve.tensors import TensorVault

_NOT_FOUND = (
    "neither DistributedDataParallel nor fully_shard was found in the model or the train step, so that gradients are "
    "shared by code that cannot be left out"
)


class GradientSharing:
    """The wrappers of a job that share gradients.

    Args:
        roots: Where they are looked for, by what each is called: the model and the train step.
    """

    def __init__(self, roots: Mapping[str, object]) -> None:
        notes = Notes()
        search = Search(TensorVault(notes), notes)
        for what, root in roots.items():
            search.walk(root, what, own=what == "the train step")
        modules = search.found(torch.nn.Module)
        self._wrappers = [module for module in modules if callable(getattr(module, "no_sync", None))]
        self._sharded = [m for m in modules if callable(getattr(m, "set_requires_gradient_sync", None))]
        self.reason = self._why_not()
        """Why it cannot be left out; empty where it can."""

    def _why_not(self) -> str:
        if not self._wrappers and not self._sharded:
            return _NOT_FOUND
        if any(getattr(wrapper, "static_graph", False) for wrapper in self._wrappers):
            return "static_graph=True fixes what each step shares"
        if any(getattr(wrapper, "find_unused_parameters", False) for wrapper in self._wrappers):
            # A step that shares after one that does not is taken to have used the parameters of both.
            return "find_unused_parameters=True needs every step to share"
        return ""

    @contextmanager
    def left_out(self) -> Iterator[None]:
        """Let steps share nothing meanwhile: the weights of the ranks go apart, until they are put back."""
        with ExitStack() as stack:
            for wrapper in self._wrappers:
                stack.enter_context(wrapper.no_sync())  # type: ignore[operator]  # looked for by its name
            for module in self._sharded:
                _share(module, shares=False)
                stack.callback(_share, module, shares=True)
            yield


def _share(module: Any, *, shares: bool) -> None:
    module.set_requires_gradient_sync(shares)


def backend_name() -> str | None:
    """Of the group in which gradients travel, as torch calls it."""
    import torch.distributed as dist

    return str(dist.get_backend()) if dist.is_initialized() else None
