"""The jobs of scripts whose loop a description can state in full, for `bottleneck diagnose described:plain`."""

import itertools

import torch
from job import BATCH_SIZE, Photos, compute, make_model
from reference import collate
from torch import nn

from bottleneck import Pipeline


def plain():
    """The job of `plain.py 2`."""
    return _described(Photos(augment_s=0.072), num_workers=2, step_s=0.060)


def by_hand():
    """The job of `by_hand.py`."""
    return _described(Photos(augment_s=0.016), num_workers=0, batches_an_update=2)


def reference():
    """The job of `reference.py`."""
    started = {"multiprocessing_context": "spawn", "persistent_workers": True}
    return _described(Photos(load_s=0.030), num_workers=1, collate_fn=collate, **started)


def _described(dataset, *, step_s=0.020, batches_an_update=1, **loader_args):
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batches = itertools.count(1)

    def step(batch):
        images, labels = (batch.images, batch.labels) if hasattr(batch, "images") else batch
        nn.functional.cross_entropy(model(images), labels).backward()
        compute(step_s)
        if next(batches) % batches_an_update == 0:
            optimizer.step()
            optimizer.zero_grad()

    return Pipeline(
        dataset=dataset, train_step=step, model=model, optimizer=optimizer, batch_size=BATCH_SIZE, shuffle=True,
        **loader_args,
    )  # fmt: skip
