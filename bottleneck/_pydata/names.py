"""What the name `bottleneck` offers, whoever owns its `__init__`: our public names, and pydata's.

Nothing is imported before it is asked for: this runs in every process that imports pandas.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

VERSION = "0.1.0"
"""Of this package; the build reads it from here.

Stays below 1: pandas takes a Bottleneck of 1.5 or more for pydata's and calls its functions.
"""

PUBLIC_NAMES = {
    "Pipeline": "bottleneck.job.description",
    "Diagnosis": "bottleneck.api",
    "diagnose": "bottleneck.api",
    "diagnosing": "bottleneck.script.within",
    "watch": "bottleneck.script.batches",
    "load": "bottleneck.api",
    "compare": "bottleneck.api",
    "stage": "bottleneck.job.marks",
    "Recipe": "bottleneck.job.recipes.interface",
    "register_recipe": "bottleneck.job.recipes.registry",
    "BottleneckError": "bottleneck.errors",
    "UsageError": "bottleneck.errors",
    "PipelineError": "bottleneck.errors",
    "TargetError": "bottleneck.errors",
    "ResultFileError": "bottleneck.errors",
    "MeasurementError": "bottleneck.errors",
}
"""Our public names and where they are defined."""

_REDUCE = (
    *("nansum", "nanmean", "nanstd", "nanvar", "nanmin", "nanmax", "nanargmin", "nanargmax", "nanmedian"),
    *("median", "ss", "anynan", "allnan"),
)
_NONREDUCE_AXIS = ("rankdata", "nanrankdata", "partition", "argpartition", "push")
_MOVE = (
    *("move_sum", "move_mean", "move_std", "move_var", "move_min", "move_max"),
    *("move_argmin", "move_argmax", "move_median", "move_rank"),
)
PYDATA_NAMES = {
    **dict.fromkeys(_REDUCE, "bottleneck.reduce"),
    **dict.fromkeys(_NONREDUCE_AXIS, "bottleneck.nonreduce_axis"),
    **dict.fromkeys(_MOVE, "bottleneck.move"),
    "replace": "bottleneck.nonreduce",
    "bench": "bottleneck.benchmark.bench",
    "bench_detailed": "bottleneck.benchmark.bench_detailed",
    "get_functions": "bottleneck.tests.util",
}
"""The public names of pydata's Bottleneck and the modules of it that define them."""

_ARRAYS = "bottleneck._pydata.arrays"
_ARRAY_NAMES = (*_REDUCE, *_NONREDUCE_AXIS, "replace")
"""Names that numpy can serve. Not the moving windows: xarray has its own when they are missing."""


def find_name(name: str) -> Any:
    """The value of `bottleneck.<name>`; what a module's `__getattr__` calls.

    Raises:
        AttributeError: Neither we nor pydata's Bottleneck have it.
    """
    if name == "__version__":
        return version()
    if name in PUBLIC_NAMES:
        return getattr(importlib.import_module(PUBLIC_NAMES[name]), name)
    if name in PYDATA_NAMES:
        return _find_pydata_name(name)
    if name == "slow":
        module = _import_or_none("bottleneck.slow")
        if module is not None:
            return module
    raise AttributeError(f"module 'bottleneck' has no attribute {name!r}")


def _find_pydata_name(name: str) -> Any:
    module = _import_or_none(PYDATA_NAMES[name])
    if module is None and name in _ARRAY_NAMES:
        module = _import_or_none(_ARRAYS)
    if module is None:
        raise AttributeError(
            f"module 'bottleneck' has no attribute {name!r}: this is torch-bottleneck, and {name} belongs "
            "to pydata's Bottleneck, which is not installed (pip install Bottleneck)"
        )
    return getattr(module, name)


def _import_or_none(module: str) -> ModuleType | None:
    try:
        return importlib.import_module(module)
    except ImportError:
        return None


def pydata_version() -> str | None:
    """The version of pydata's Bottleneck if its compiled modules lie beside ours; None otherwise."""
    return None if _import_or_none("bottleneck.reduce") is None else installed_version("Bottleneck")


def installed_version(distribution: str) -> str | None:
    """The version of an installed distribution; None if it is not installed."""
    from importlib import metadata

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def version() -> str:
    """`bottleneck.__version__`: pydata's where its modules are there and forwarded, ours otherwise.

    When it is pandas that asks, and ours is the answer, its one warning that this Bottleneck is too old is
    silenced: a newer one must not be installed. No other process gets an entry in its warnings filters.
    """
    theirs = pydata_version()
    if theirs is not None:
        return theirs
    if _asked_by_pandas():
        _silence_pandas()
    return VERSION


def _asked_by_pandas() -> bool:
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] == "bottleneck":
        frame = frame.f_back
    return bool(frame.f_globals.get("__name__", "").split(".")[0] == "pandas")


def _silence_pandas() -> None:
    import warnings

    # pandas/compat/_optional.py: "Pandas requires version '1.5.0' or newer of 'bottleneck' (version ...".
    warnings.filterwarnings(
        "ignore",
        message=r"Pandas requires version '[^']*' or newer of 'bottleneck'",
        category=UserWarning,
    )


def share_public_names(module: ModuleType) -> None:
    """Let `from bottleneck import Pipeline` work on a `bottleneck` module that is not ours.

    Args:
        module: `sys.modules["bottleneck"]`, which pydata's Bottleneck owns when it was installed last.
    """
    previous = module.__dict__.get("__getattr__")
    if getattr(previous, "__module__", None) in (__name__, "bottleneck"):
        return

    def __getattr__(name: str) -> Any:
        if name in PUBLIC_NAMES:
            return find_name(name)
        if previous is not None:
            return previous(name)
        raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")

    module.__dict__["__getattr__"] = __getattr__
