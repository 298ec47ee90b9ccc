"""The import name `bottleneck`, which is shared with pydata's Bottleneck: its contents, and their users.

pandas, xarray and astropy probe for pydata's. pandas ignores an old version. xarray and astropy call ten of its
functions, which numpy implements here; other names that they look for may be missing. Nothing is imported before it is
needed, because this runs in every process that imports pandas.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

VERSION = "0.1.0"
"""Version of this package, which the build reads from here.

It stays below 1, because pandas takes a Bottleneck of 1.5 or more for pydata's and calls its functions.
"""

PUBLIC_NAMES = {
    "Pipeline": "bottleneck.job.pipeline",
    "Diagnosis": "bottleneck.api",
    "diagnose": "bottleneck.api",
    "diagnosing": "bottleneck.script.diagnosing",
    "monitoring": "bottleneck.monitor.monitoring",
    "watch": "bottleneck.script.batches",
    "Change": "bottleneck.tuner.change",
    "Tuning": "bottleneck.tuner.tune",
    "tune": "bottleneck.tuner.tune",
    "tuning": "bottleneck.tuner.script",
    "Workers": "bottleneck.tuner.workers",
    "workers": "bottleneck.tuner.workers",
    "load": "bottleneck.api",
    "compare": "bottleneck.api",
    "stage": "bottleneck.job.marks",
    "Recipe": "bottleneck.job.recipes",
    "register_recipe": "bottleneck.job.recipes",
    "BottleneckError": "bottleneck.errors",
    "UsageError": "bottleneck.errors",
    "PipelineError": "bottleneck.errors",
    "TargetError": "bottleneck.errors",
    "ResultFileError": "bottleneck.errors",
    "MeasurementError": "bottleneck.errors",
}
"""Public names and the modules that define them."""

_ASTROPYS = ("nansum", "nanmean", "nanmedian", "nanstd", "nanvar", "nanmin", "nanmax")
_XARRAYS = ("push", "rankdata", "nanrankdata")


def public_name(name: str) -> Any:
    """Return the value of one of our public names.

    Raises:
        AttributeError: The name is not public.
    """
    if name in PUBLIC_NAMES:
        return getattr(importlib.import_module(PUBLIC_NAMES[name]), name)
    raise AttributeError(f"no attribute {name!r} in torch-bottleneck, which is not pydata's Bottleneck")


def find_name(name: str) -> Any:
    """Return the value of `bottleneck.<name>`, for the module's `__getattr__`.

    Raises:
        AttributeError: The name is not ours, and neither xarray nor astropy calls it.
    """
    if name == "__version__":
        if "pandas" in sys.modules:
            import warnings

            # pandas/compat/_optional.py warns that this Bottleneck is too old, at every import.
            asked = r"Pandas requires version '[^']*' or newer of 'bottleneck'"
            warnings.filterwarnings("ignore", message=asked, category=UserWarning)
        return VERSION
    if name in _ASTROPYS:
        return getattr(importlib.import_module("numpy"), name)
    return globals()[name] if name in _XARRAYS else public_name(name)


def share_public_names(module: ModuleType) -> None:
    """Let `from bottleneck import Pipeline` work on an imported `bottleneck` that is pydata's."""
    module.__dict__.setdefault("__getattr__", public_name)


def installed_version(distribution: str) -> str | None:
    """Return the version of an installed distribution; None if it is not installed."""
    from importlib import metadata

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def push(a: Any, n: int | None = None, axis: int = -1) -> Any:
    """Fill NaN with the last number before it, if that is at most `n` places away."""
    import numpy as np

    a = np.array(a)
    if a.dtype.kind not in "fc":
        return a
    rows = np.moveaxis(a, axis, -1)
    places = np.arange(rows.shape[-1])
    source = np.maximum.accumulate(np.where(np.isnan(rows), 0, places), axis=-1)
    near = True if n is None else places - source <= n
    return np.moveaxis(np.where(near, np.take_along_axis(rows, source, axis=-1), rows), -1, axis)


def nanrankdata(a: Any, axis: int | None = None) -> Any:
    """Rank the numbers from 1, with the mean rank for equal values; NaN stays NaN."""
    import numpy as np

    def rank(row: Any) -> Any:
        _, place, count = np.unique(row, return_inverse=True, return_counts=True)
        return (np.cumsum(count) - (count - 1) / 2)[place]

    a, axis = (np.ravel(a), 0) if axis is None else (np.asarray(a), axis)
    return np.where(np.isnan(a), np.nan, np.apply_along_axis(rank, axis, a) if a.size else np.nan)


rankdata = nanrankdata  # xarray uses it for arrays without NaN
