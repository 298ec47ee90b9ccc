"""Diagnoses one planted pipeline in a separate process and prints time and peak memory as JSON."""

from __future__ import annotations

import json
import resource
import sys

import click

from benchmarks.planted import find_planted
from benchmarks.verdicts import run_trial


def peak_bytes() -> int:
    """Peak resident memory of this process plus that of its largest child so far."""
    unit = 1 if sys.platform == "darwin" else 1024
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return unit * sum(resource.getrusage(kind).ru_maxrss for kind in kinds)


@click.command()
@click.argument("name")
@click.option("--length", type=int, default=1000, show_default=True, help="Samples in the dataset.")
@click.option("--quick/--default", default=True, help="How long to measure.")
def main(name: str, length: int, quick: bool) -> None:
    """Diagnose the planted pipeline NAME."""
    trial = run_trial(find_planted(name), quick=quick, length=length)
    if trial.failure:
        raise click.ClickException(trial.failure)
    click.echo(json.dumps({"seconds": trial.seconds, "peak_bytes": peak_bytes(), "verdict": trial.bottleneck}))


if __name__ == "__main__":
    main()
