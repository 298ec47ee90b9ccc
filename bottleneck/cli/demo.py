"""`bottleneck demo`: a diagnosis to look at, of a job that everybody knows, on made-up photographs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bottleneck.cli.help import Command
from bottleneck.cli.measuring import measure_job, write_attempt
from bottleneck.cli.options import as_seconds, traceback_option
from bottleneck.cli.outputs import plan_outputs
from bottleneck.cli.printing import say
from bottleneck.demo.photographs import CLASSES, ensure_photographs
from bottleneck.errors import ExitStatus
from bottleneck.measure.options import MeasureOptions
from bottleneck.measure.system.cores import usable_cores

if TYPE_CHECKING:
    from torch import nn

    from bottleneck.job.pipeline import Pipeline

BATCH_SIZE = 16
BUDGET = "40s"
NEXT = """
Next, your own job, as it is:
  bottleneck run train.py
or a function that returns bottleneck.Pipeline(dataset=..., model=..., ...):
  bottleneck diagnose myjob.py:build"""


@click.command("demo", cls=Command)
@click.option(
    "--budget",
    callback=as_seconds,
    metavar="TIME",
    default=BUDGET,
    show_default=True,
    help="How long it may take.",
)
@click.option(
    "--images",
    type=click.IntRange(min=2 * BATCH_SIZE),
    metavar="N",
    default=300,
    show_default=True,
    help="How many photographs to make.",
)
@click.option("--report", metavar="FILE", default="report.md", show_default=True, help="Report in markdown.")
@click.option("--html", metavar="FILE", default="report.html", show_default=True, help="Report as a web page.")
@traceback_option
def demo_command(budget: float, images: int, report: str, html: str) -> int:
    """Diagnose a small job on made-up photographs.

    The job reads JPEG files with torchvision's ImageFolder and the usual augmentation. The files are made once, in the
    cache folder. No download and no GPU are needed.
    """
    outputs = plan_outputs({"markdown": report, "html": html})
    folder = make_photographs(images)
    attempt = measure_job(lambda: build_demo(folder), MeasureOptions(budget_s=budget))
    write_attempt(attempt, outputs)
    say(NEXT)
    return ExitStatus.OK


def make_photographs(images: int) -> Path:
    """The folder of photographs, with a progress bar on standard error while it is made.

    Raises:
        UsageError: The cache folder cannot be written.
    """
    with click.progressbar(length=images, label="Making photographs", file=sys.stderr) as bar:
        folder = ensure_photographs(images, on_progress=lambda done, _total: bar.update(done - bar.pos))
        bar.update(images - bar.pos)  # they were there already
    return folder


def build_demo(folder: Path) -> Pipeline:
    """The job: random crops, flips and jitter of photographs, and a small convolutional network."""
    import torch
    from torch import nn
    from torchvision import datasets, transforms

    from bottleneck.job.pipeline import Pipeline
    from bottleneck.job.step import resolve_device

    augmentation = transforms.Compose(
        [
            transforms.RandomResizedCrop(224),
            transforms.RandomHorizontalFlip(),
            transforms.ColorJitter(brightness=0.2, contrast=0.2, saturation=0.2),
            transforms.ToTensor(),
            transforms.Normalize(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)),
        ]
    )
    device = resolve_device(None)
    cores = max(1, int(usable_cores()))
    workers = max(1, min(2, cores - 1))
    if device.type == "cpu":
        # Threads of the train step that share cores with the workers spin at each other's barriers, and the step
        # takes two or ten times as long from one moment to the next.
        torch.set_num_threads(max(1, cores - workers))
    model = small_network(len(CLASSES)).to(device)
    return Pipeline(
        dataset=datasets.ImageFolder(str(folder), transform=augmentation),
        model=model,
        loss_fn=nn.CrossEntropyLoss(),
        optimizer=torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9),
        device=device,
        batch_size=BATCH_SIZE,
        shuffle=True,
        num_workers=workers,
        pin_memory=device.type == "cuda",
        drop_last=True,
    )


def small_network(classes: int) -> nn.Module:
    """A convolutional network that a CPU can train while somebody waits."""
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(3, 16, kernel_size=7, stride=4, padding=3),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, kernel_size=3, stride=2, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, classes),
    )
