"""The package `bottleneck` under a name that is this distribution's alone.

Where pydata's Bottleneck is installed, `import bottleneck` gives that one; `from torch_bottleneck import Pipeline`
works in every environment. The modules are those of the folder `bottleneck/` beside this one.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import bottleneck

_MODULES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "bottleneck")
if _MODULES not in bottleneck.__path__:  # pydata's is installed in another place, which comes first in sys.path
    bottleneck.__path__.append(_MODULES)

from bottleneck._pydata.names import PUBLIC_NAMES, find_name  # noqa: E402 - found only from here on
from bottleneck._pydata.names import VERSION as __version__  # noqa: E402

if TYPE_CHECKING:
    from bottleneck.api import Diagnosis, compare, diagnose, load
    from bottleneck.errors import (
        BottleneckError,
        MeasurementError,
        PipelineError,
        ResultFileError,
        TargetError,
        UsageError,
    )
    from bottleneck.job.description import Pipeline
    from bottleneck.job.marks import stage
    from bottleneck.job.recipes.interface import Recipe
    from bottleneck.job.recipes.registry import register_recipe
    from bottleneck.script.batches import watch
    from bottleneck.script.within import diagnosing
    from bottleneck.tuning.change import Change
    from bottleneck.tuning.tune import Tuning, tune

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
    "__version__",
    "compare",
    "diagnose",
    "diagnosing",
    "load",
    "register_recipe",
    "stage",
    "tune",
    "watch",
]


def __getattr__(name: str) -> Any:
    if name in PUBLIC_NAMES:
        return find_name(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
