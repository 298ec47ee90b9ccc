"""A job of two ranks under Ray Train, the second of which loads slowly; rank 0 writes the result."""

import sys
from pathlib import Path

import ray
import ray.train
import torch
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, prepare_model
from torch import nn
from torch.utils.data import DataLoader

import bottleneck
from tests.frameworks_training.slow_ranks import SleepingModel, rows_of


def train(config):
    torch.set_num_threads(1)
    model, rank = prepare_model(SleepingModel()), ray.train.get_context().get_world_rank()
    loader = DataLoader(rows_of(rank), batch_size=4, num_workers=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    pipeline = bottleneck.Pipeline.from_loader(
        loader, model=model, loss_fn=nn.CrossEntropyLoss(), optimizer=optimizer, device="cpu"
    )
    diagnosis = bottleneck.diagnose(pipeline, budget="15s")
    if rank == 0:
        Path(config["path"]).write_text(diagnosis.to_json())


if __name__ == "__main__":
    ray.init(num_cpus=4, include_dashboard=False)
    trainer = TorchTrainer(
        train,
        train_loop_config={"path": sys.argv[1]},
        scaling_config=ScalingConfig(num_workers=2, resources_per_worker={"CPU": 1}),
        run_config=RunConfig(storage_path=str(Path(sys.argv[1]).parent / "ray")),
    )
    trainer.fit()
    ray.shutdown()
