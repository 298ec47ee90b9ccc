"""The sharing of gradients between ranks, and how to leave it out of a step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

import torch
from torch.nn.parallel import DistributedDataParallel

from bottleneck.measure.preserve.restoration import Notes
from bottleneck.measure.preserve.search import Search
from bottleneck.measure.preserve.tensors import TensorVault

_NOT_FOUND = (
    "no DistributedDataParallel was found in the model or the train step, so that gradients are shared by code that "
    "cannot be left out"
)
_SHARDED = (
    "under FSDP, a step that shares nothing keeps whole gradients on each rank, which may not fit, and leaves the "
    "optimizer none for its shard"
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
        self._wrappers = search.found(DistributedDataParallel)
        self.reason = self._why_not(search.found(torch.nn.Module))
        """Why it cannot be left out; empty where it can."""

    def _why_not(self, modules: list[torch.nn.Module]) -> str:
        if any(_is_sharded(module) for module in modules):
            return _SHARDED
        if not self._wrappers:
            return _NOT_FOUND
        if any(wrapper.static_graph for wrapper in self._wrappers):
            return "static_graph=True fixes what each step shares"
        if any(wrapper.find_unused_parameters for wrapper in self._wrappers):
            # A step that shares after one that does not is taken to have used the parameters of both.
            return "find_unused_parameters=True needs every step to share"
        return ""

    @contextmanager
    def left_out(self) -> Iterator[None]:
        """Let steps share nothing meanwhile: the weights of the ranks go apart, until they are put back."""
        with ExitStack() as stack:
            for wrapper in self._wrappers:
                stack.enter_context(wrapper.no_sync())
            yield


def _is_sharded(module: torch.nn.Module) -> bool:
    """Whether FSDP shares the gradients of a module: `fully_shard`, or a wrapper of PyTorch's or fairscale's."""
    by_name = any(kind.__name__ == "FullyShardedDataParallel" for kind in type(module).__mro__)
    return by_name or callable(getattr(type(module), "set_requires_gradient_sync", None))


def backend_name() -> str | None:
    """Of the group in which gradients travel, as torch calls it."""
    import torch.distributed as dist

    return str(dist.get_backend()) if dist.is_initialized() else None
