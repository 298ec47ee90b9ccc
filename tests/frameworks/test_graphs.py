"""PyTorch Geometric: a batch is an object that holds its tensors in a store, and moves them in place."""

import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import DataLoader

from bottleneck.job.step import move_to_device
from bottleneck.measure.evidence.payload import describe_payload
from bottleneck.script.job import Moves


def graphs():
    return [Data(x=torch.rand(3, 2), edge_index=torch.zeros(2, 4, dtype=torch.int64)) for _ in range(4)]


def test_the_tensors_of_a_batch_of_graphs_are_seen():
    batch = next(iter(DataLoader(graphs(), batch_size=2)))
    found = {tensor.path: tensor.shape for tensor in describe_payload(batch).tensors}
    assert found["._store.x"] == (6, 2)
    assert found["._store.edge_index"] == (2, 8)
    assert batch._store.x is batch.x  # a path can be pasted


def test_the_tensors_of_a_graph_of_several_kinds_are_seen():
    graph = HeteroData()
    graph["paper"].x = torch.rand(3, 2)
    graph["paper", "cites", "paper"].edge_index = torch.zeros(2, 4, dtype=torch.int64)
    assert {tensor.shape for tensor in describe_payload(graph).tensors} == {(3, 2), (2, 4)}


def test_a_loop_that_moves_its_graphs_is_served_graphs_on_the_device():
    # Guards: 'gets batches without a tensor', and no graph of `device` on the device.
    moves, batches = Moves(), iter(DataLoader(graphs(), batch_size=2))
    batch = next(batches)
    moves.begin(batch)
    batch.to("meta")
    moves.end()
    assert (moves.in_the_loop, moves.are_written) == (None, True)
    cached = next(batches)
    moved = moves.learnt()(cached, torch.device("meta"))
    assert moved.x.device.type == moved.edge_index.device.type == "meta"
    assert moved.num_graphs == 2
    assert cached.x.device.type == cached.edge_index.device.type == "cpu"


def test_a_cached_batch_of_graphs_stays_on_the_host():
    batch = next(iter(DataLoader(graphs(), batch_size=2)))
    moved = move_to_device(batch, torch.device("meta"))
    assert moved.x.device.type == moved.edge_index.device.type == "meta"
    assert batch.x.device.type == batch.edge_index.device.type == "cpu"
