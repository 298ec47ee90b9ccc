"""PyTorch Geometric: a transform of each graph, and batches of graphs that move themselves in place."""

import torch
from jobs import Slow, wait_for_the_device
from torch import nn
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCNConv, global_mean_pool


class Graphs(torch.utils.data.Dataset):
    def __init__(self, count, transform):
        self.count, self.transform = count, transform

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        nodes = 5 + index % 3
        edges = torch.stack([torch.arange(nodes), torch.arange(nodes).roll(1)])
        return self.transform(Data(x=torch.ones(nodes, 4), edge_index=edges, y=torch.tensor([index % 2])))


class Widened(Slow):
    def __call__(self, graph):
        graph.x = super().__call__(graph.x)
        return graph


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution, self.head = GCNConv(4, 8), nn.Linear(8, 2)

    def forward(self, graphs):
        nodes = self.convolution(graphs.x, graphs.edge_index).relu()
        return self.head(global_mean_pool(nodes, graphs.batch))


if __name__ == "__main__":
    loader = DataLoader(Graphs(640, Widened()), batch_size=16, shuffle=True, num_workers=1)
    model = Model()
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(1000):
        for graphs in loader:
            graphs.to("cpu")
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(graphs), graphs.y).backward()
            optimizer.step()
            wait_for_the_device()
    print("the end")
