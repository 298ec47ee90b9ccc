"""PyTorch Geometric: a batch is an object that holds its tensors in a store, and moves them in place."""

import timeit

import pytest
import torch
from torch_geometric.data import Data, HeteroData, InMemoryDataset
from torch_geometric.loader import DataLoader
from torch_geometric.transforms import AddRandomWalkPE

from bottleneck.job.step import move_to_device
from bottleneck.loader import trees
from bottleneck.measure.evidence.payload import describe_payload
from bottleneck.script.job import Moves
from bottleneck.tuner.changes.samples import InMemory, prepare


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


class Molecules(InMemoryDataset):
    """Graphs that are views of a few large tensors."""

    def __init__(self, transform=None, length=600):
        super().__init__(None, transform)
        edges = torch.randint(0, 30, (length, 2, 120))
        self.data, self.slices = self.collate([Data(x=torch.rand(30, 16), edge_index=each) for each in edges])


def test_graphs_of_a_dataset_in_memory_count_and_are_copied_by_what_they_hold_of_it():
    # Guards: 'all 600 samples take about 1.71 GiB', which are 3 MB.
    molecules = Molecules()
    whole = sum(tensor.nbytes for tensor in (molecules._data.x, molecules._data.edge_index))
    every = [molecules[index] for index in range(len(molecules))]
    assert whole < trees.nbytes(every) < 2 * whole
    copied = trees.copy_deep(molecules[5])
    assert trees.equal(copied, molecules[5])
    assert copied.x.untyped_storage().nbytes() == copied.x.nbytes
    batch = next(iter(DataLoader(molecules, batch_size=4)))
    assert trees.equal(trees.copy_deep(batch).to_data_list(), batch.to_data_list())


@pytest.mark.integration
def test_a_graph_from_memory_is_there_sooner_than_it_is_made():
    # Guards: a job that was promised 3.6x by keeping its samples got 0.15x.
    made = Molecules(AddRandomWalkPE(8))
    memory = InMemory(made, whole=True)
    prepare(memory)
    assert trees.equal(memory[7], made[7])
    made_s = min(timeit.repeat(lambda: made[7], number=20, repeat=5))
    assert min(timeit.repeat(lambda: memory[7], number=20, repeat=5)) < made_s / 2
