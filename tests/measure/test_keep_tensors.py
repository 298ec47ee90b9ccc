"""Tensors of unusual kinds go back too, and what cannot be kept is said."""

import pytest
import torch
from torch import nn

from bottleneck.measure.keep.preserved import preserved


def _inference_tensor():
    with torch.inference_mode():
        return torch.arange(3.0)


ODD_TENSORS = {
    "expanded": lambda: torch.ones(1).expand(5),
    "strided": lambda: torch.arange(10.0)[::3],
    "conjugate": lambda: torch.randn(3, dtype=torch.complex64).conj(),
    "float8": lambda: torch.randn(3).to(torch.float8_e4m3fn),
    "nan payload": lambda: torch.tensor([0x7FC00001, -(2**31)], dtype=torch.int32).view(torch.float32),
    "scalar": lambda: torch.tensor(3.0),
    "empty": lambda: torch.empty(0, 3),
    "sparse": lambda: torch.eye(3).to_sparse(),
    "csr": lambda: torch.eye(3).to_sparse_csr(),
    "quantized": lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
    "inference": _inference_tensor,
}


def _bytes(tensor):
    tensor = tensor.detach()
    if tensor.is_quantized:
        tensor = tensor.int_repr()
    dense = tensor.to_dense() if tensor.layout is not torch.strided else tensor.resolve_conj().contiguous()
    return bytes(dense.clone().untyped_storage().tolist())


def _overwrite(tensor):
    """Change the content in place, with whatever this kind of tensor allows."""
    if tensor.layout is torch.sparse_coo:
        tensor.zero_()
    elif tensor.layout is torch.sparse_csr:
        tensor.values().zero_()
    else:
        storage = tensor.untyped_storage()
        torch.empty(0, dtype=torch.uint8).set_(storage).fill_(1)


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning", "ignore:.*quantized tensor:UserWarning")
@pytest.mark.parametrize("name", ODD_TENSORS)
def test_odd_tensors_are_put_back(name):
    model = nn.Module()
    model.register_buffer("odd", ODD_TENSORS[name]())
    odd, before = model.odd, _bytes(model.odd)
    with preserved(model=model) as kept:
        if name != "empty":
            _overwrite(odd)
            assert _bytes(odd) != before
    assert model.odd is odd
    assert _bytes(odd) == before
    assert kept.notes == []


def test_meta_tensors_and_wrappers_are_put_back():
    model = nn.Module()
    model.meta = nn.Parameter(torch.empty(3, device="meta"))
    ragged = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    model.register_buffer("ragged", ragged)
    with preserved(model=model):
        model.meta.requires_grad_(False)
        ragged.values().zero_()
    assert model.meta.requires_grad
    assert ragged.values().tolist() == [1] * 5


class Stubborn(torch.Tensor):
    """A tensor subclass that refuses every operation."""

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise RuntimeError("not with me")


def test_what_cannot_be_kept_is_said_once_for_all_of_its_kind_and_the_rest_is_put_back():
    model = nn.Module()
    plain = torch.ones(3)
    model.register_buffer("plain", plain)
    for name in ("first", "second"):
        model._buffers[name] = torch.Tensor._make_wrapper_subclass(Stubborn, (3,))
    stubborn = model.first
    with preserved(model=model) as kept:
        plain.zero_()
        model._buffers["first"] = None
    assert plain.tolist() == [1, 1, 1]
    assert model.first is stubborn
    (note,) = kept.notes
    assert "'first'] and 1 more like it could not be copied" in note
    assert "not with me" in note
