"""What the name `bottleneck` offers: our public names, and those of pydata's that numpy can serve.

Where pydata's Bottleneck is installed, the name is pydata's, and only `share_public_names` is of use. Nothing is
imported before it is asked for: this runs in every process that imports pandas.
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
    "Change": "bottleneck.tuning.change",
    "Tuning": "bottleneck.tuning.tune",
    "tune": "bottleneck.tuning.tune",
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

ARRAY_NAMES = frozenset(
    {
        *("nansum", "nanmean", "nanstd", "nanvar", "nanmin", "nanmax", "nanargmin", "nanargmax", "nanmedian"),
        *("median", "ss", "anynan", "allnan"),
        *("rankdata", "nanrankdata", "partition", "argpartition", "push", "replace"),
    }
)
"""Functions of pydata's Bottleneck that numpy can serve. Not the moving windows: xarray has its own of those."""


def find_name(name: str) -> Any:
    """The value of `bottleneck.<name>`; what a module's `__getattr__` calls.

    Raises:
        AttributeError: It is none of ours, and none that numpy can serve.
    """
    if name == "__version__":
        return version()
    if name in PUBLIC_NAMES:
        return getattr(importlib.import_module(PUBLIC_NAMES[name]), name)
    if name in ARRAY_NAMES:
        return getattr(importlib.import_module("bottleneck._pydata.arrays"), name)
    raise AttributeError(
        f"module 'bottleneck' has no attribute {name!r}: this is torch-bottleneck, and not pydata's Bottleneck"
    )


def installed_version(distribution: str) -> str | None:
    """The version of an installed distribution; None if it is not installed."""
    from importlib import metadata

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def version() -> str:
    """`bottleneck.__version__`.

    When it is pandas that asks, its one warning that this Bottleneck is too old is silenced. No other process gets
    an entry in its warnings filters.
    """
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


def is_ours(module: ModuleType) -> bool:
    """Whether an imported `bottleneck` is this package's, and not pydata's or a folder without an owner."""
    return set(PUBLIC_NAMES) <= set(module.__dict__.get("__all__", ()))


def share_public_names(module: ModuleType) -> None:
    """Let `from bottleneck import Pipeline` work on an imported `bottleneck` that is not this package's."""
    previous = module.__dict__.get("__getattr__")
    if is_ours(module) or getattr(previous, "__module__", None) == __name__:
        return

    def __getattr__(name: str) -> Any:
        if name in PUBLIC_NAMES:
            return find_name(name)
        if previous is not None:
            return previous(name)
        raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")

    module.__dict__["__getattr__"] = __getattr__
