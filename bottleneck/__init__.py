"""Find the slow stage of a PyTorch input pipeline, the gain of fixing it, and the line to change.

This module runs on every `import pandas` of our users, because pandas, xarray and astropy probe for pydata's
Bottleneck under the same name. Therefore it imports nothing, and public names are resolved on demand.

A wheel contains this file as `bottleneck.py`, so that it does not collide with pydata's: `setup.py` has the reasons.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as type checkers expect it, without the cost of importing typing
if TYPE_CHECKING:
    from typing import Any

    from bottleneck.api import Diagnosis, compare, diagnose, load
    from bottleneck.errors import (
        BottleneckError,
        MeasurementError,
        PipelineError,
        ResultFileError,
        TargetError,
        UsageError,
    )
    from bottleneck.job.marks import stage
    from bottleneck.job.pipeline import Pipeline
    from bottleneck.job.recipes import Recipe, register_recipe
    from bottleneck.monitor.monitoring import monitoring
    from bottleneck.script.batches import watch
    from bottleneck.script.diagnosing import diagnosing
    from bottleneck.tuner.change import Change
    from bottleneck.tuner.script import tuning
    from bottleneck.tuner.tune import Tuning, tune
    from bottleneck.tuner.workers import Workers, workers

    __version__: str

__all__ = [
    "BottleneckError",
    "Change",
    "Diagnosis",
    "MeasurementError",
    "Pipeline",
    "PipelineError",
    "Recipe",
    "ResultFileError",
    "TargetError",
    "Tuning",
    "UsageError",
    "Workers",
    "compare",
    "diagnose",
    "diagnosing",
    "load",
    "monitoring",
    "register_recipe",
    "stage",
    "tune",
    "tuning",
    "watch",
    "workers",
]


def __getattr__(name: str) -> Any:
    if name.startswith("__") and name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from bottleneck._pydata import find_name

    return find_name(name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__, "__version__"])


if __name__ == "__main__":  # `python -m bottleneck` finds bottleneck.py; bottleneck/__main__.py only in a folder
    import runpy

    runpy.run_module("bottleneck.__main__", run_name="__main__")
elif "__path__" not in globals():  # this file is bottleneck.py: a module with a __path__ is a package
    __path__ = [__file__.rpartition(".")[0]]
