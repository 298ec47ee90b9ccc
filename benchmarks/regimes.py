"""Efficiency where users are: up to twelve workers, batches of uneven times, workers that take 20 ms to 2 s a batch.

`python -m benchmarks.regimes NAME` times the plain loop of one and diagnoses it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from benchmarks.checks import find_by_name
from benchmarks.efficiencies import command
from benchmarks.uneven import UnevenLoader


@dataclass(frozen=True)
class Regime:
    """A job in one corner of the grid."""

    loader: UnevenLoader
    loss: float
    """About what share of the step's throughput is lost, from a simulation; the plain loop says it precisely."""

    @property
    def name(self) -> str:
        """Such as `w8-184ms-cv10-loss14`."""
        loader = self.loader
        took = f"{loader.worker_batch_s * 1e3:.0f}ms"
        return f"w{loader.num_workers}-{took}-cv{loader.cv * 100:.0f}-loss{self.loss * 100:.0f}"

    @property
    def what(self) -> str:
        return f"step {self.loader.step_s * 1e3:.4g} ms"

    def build(self, **changes: Any) -> dict[str, Any]:
        return self.loader.build(**changes)


def _regime(workers: int, worker_batch_ms: float, cv_percent: float, step_ms: float, loss: float) -> Regime:
    return Regime(UnevenLoader(workers, worker_batch_ms / 1e3, cv_percent / 100, step_ms / 1e3), loss)


REGIMES: tuple[Regime, ...] = (
    _regime(2, 20, 0, 13, 0.03),
    _regime(2, 500, 5, 232.5, 0.07),
    _regime(2, 60, 10, 24, 0.20),
    _regime(2, 1000, 15, 490, 0.03),
    _regime(2, 200, 30, 91, 0.12),
    _regime(4, 250, 0, 60.5, 0.03),
    _regime(4, 80, 5, 17.6, 0.12),
    _regime(4, 600, 10, 195, 0),
    _regime(4, 100, 15, 23.5, 0.07),
    _regime(4, 1500, 30, 320, 0.20),
    _regime(8, 190, 0, 20, 0.16),
    _regime(8, 2000, 0, 232.5, 0.07),
    _regime(8, 400, 5, 40, 0.20),
    _regime(8, 184, 10, 20, 0.14),
    _regime(8, 160, 10, 19.7, 0.03),
    _regime(8, 208, 15, 20, 0.25),
    _regime(8, 900, 15, 102, 0.12),
    _regime(8, 190, 30, 31, 0.01),
    _regime(12, 400, 0, 29.3, 0.12),
    _regime(12, 2000, 5, 216, 0),
    _regime(12, 800, 10, 63, 0.07),
    _regime(12, 250, 15, 17.2, 0.20),
    _regime(12, 1400, 30, 131, 0.03),
    _regime(12, 2310, 30, 250, 0),
)
"""Chosen to cover the grid of the design without running all of it; three rows are those of a report of users'."""


def find_job(name: str) -> Regime:
    """The regime of that name."""
    return find_by_name(REGIMES, name)


if __name__ == "__main__":
    command("benchmarks.regimes", find_job)()
