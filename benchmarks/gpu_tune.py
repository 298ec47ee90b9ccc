"""`python -m benchmarks.gpu_tune`: the job of PyTorch's profiler tutorial, tuned on a GPU; adds to benchmarks/GPU.md.

Without a GPU it says so, and writes nothing.
"""

from __future__ import annotations

from pathlib import Path

import click
import torch

from benchmarks.gpu import NO_GPU, PAGE, TUNED
from bottleneck.tuning.tune import tune
from examples.seed_ladder import BY_HAND, build


def add_to_page(page: Path, report: str) -> None:
    """Write the report of a tuning at the end of the page, in the place of an earlier one.

    Args:
        page: benchmarks/GPU.md, which need not exist.
        report: In markdown.
    """
    text = page.read_text(encoding="utf-8") if page.exists() else "# On a GPU\n"
    before, _, _ = text.partition(TUNED)
    page.write_text(f"{before}{TUNED}\n{report.strip()}\n\n```\n{BY_HAND.strip()}\n```\n", encoding="utf-8")


@click.command()
@click.option("--output", type=click.Path(path_type=Path), default=PAGE, help="The page to add to.")
@click.option("--budget", default="9m", show_default=True, help="How long the tuning may take.")
def main(output: Path, budget: str) -> None:
    """Tune the job on a GPU and add the report to benchmarks/GPU.md."""
    if not torch.cuda.is_available():
        click.echo(NO_GPU)
        return
    tuning = tune(build(), budget=budget)
    click.echo(str(tuning))
    add_to_page(output, tuning.to_markdown())


if __name__ == "__main__":
    main()
