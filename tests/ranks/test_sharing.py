"""Gradient sharing that can be left out of a step, and the reason in the report if it cannot."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import fsdp
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

from bottleneck.measure.ranks.lockstep import GradientSharing


@pytest.fixture(scope="module", autouse=True)
def mesh(tmp_path_factory):
    """The mesh of a process group that has this process alone."""
    path = tmp_path_factory.mktemp("group") / "group"
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


def two_layers():
    return nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))


def find_sharing(model):
    return GradientSharing({"the model": model, "the train step": lambda batch: model(batch).sum().backward()})


def test_wrapped_models_share_nothing_while_it_is_left_out():
    model = nn.ModuleList([DistributedDataParallel(two_layers()), DistributedDataParallel(two_layers())])
    sharing = GradientSharing({"the model": model[0].module, "the train step": [model]})  # found in either
    assert sharing.reason == ""
    with sharing.left_out():
        assert [part.require_backward_grad_sync for part in model] == [False, False]
        model[0](torch.ones(1, 4)).sum().backward()
    assert [part.require_backward_grad_sync for part in model] == [True, True]
    assert all(parameter.grad is not None for parameter in model[0].parameters())


@pytest.mark.skipif(not hasattr(fsdp, "fully_shard"), reason="of torch 2.6 and later")
def test_sharded_modules_are_never_told_to_keep_whole_gradients(mesh):
    model = two_layers()
    for module in (model[0], model):
        fsdp.fully_shard(module, mesh=mesh)
    assert find_sharing(model).reason.startswith("under FSDP")


def test_wrappers_that_shard_are_never_asked_for_no_sync():
    # Guards: `no_sync` of an inner wrapper raises, on all ranks. FSDP 1 cannot be built without an accelerator.
    kind, inner = fsdp.FullyShardedDataParallel, two_layers()
    outer = kind.__new__(kind)
    nn.Module.__init__(outer)
    outer._fsdp_wrapped_module = inner
    inner.append(DistributedDataParallel(two_layers()))
    assert find_sharing(outer).reason.startswith("under FSDP")


class Engine(nn.Module):
    """An engine such as DeepSpeed's, which refuses `no_sync`."""

    def no_sync(self):
        raise AssertionError("incompatible with gradient partitioning")


@pytest.mark.parametrize("make", [Engine, two_layers])
def test_what_nothing_of_torchs_wraps_is_left_alone(make):
    sharing = find_sharing(make())
    assert sharing.reason.startswith("no DistributedDataParallel was found")
    with sharing.left_out():
        pass


@pytest.mark.parametrize("option", ["static_graph", "find_unused_parameters"])
def test_wrappers_whose_every_step_has_to_share(option):
    sharing = find_sharing(DistributedDataParallel(two_layers(), **{option: True}))
    assert sharing.reason.startswith(f"{option}=True")
