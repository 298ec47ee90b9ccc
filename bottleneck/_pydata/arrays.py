"""The functions of pydata's Bottleneck that other packages call, served by numpy with the same signatures.

Sources: the documented behaviour of Bottleneck 1.6 (reduce, nonreduce, nonreduce_axis). Like the originals
they take any real array, look at its plain data (a Quantity loses its unit, a masked array its mask), reduce
over one axis or all, and give NaN without a warning where there is nothing to reduce.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = Any
Axis = int | None


def _float_dtype(a: Array) -> Any:
    return a.dtype if a.dtype.kind in "fc" else np.dtype(np.float64)


def _zeroed(a: Array) -> tuple[Array, Array]:
    """The array with zeros for NaN, and where it is no number."""
    missing = np.isnan(a)
    return np.where(missing, a.dtype.type(0), a), missing


def nansum(a: Array, axis: Axis = None) -> Array:
    """Sum without NaN; 0 where all are NaN."""
    return np.nansum(np.asarray(a), axis=axis)


def nanmean(a: Array, axis: Axis = None) -> Array:
    """Mean without NaN; NaN where all are NaN."""
    a = np.asarray(a)
    values, missing = _zeroed(a)
    count = np.sum(~missing, axis=axis)
    with np.errstate(invalid="ignore", divide="ignore"):
        return (np.sum(values, axis=axis, dtype=_float_dtype(a)) / count).astype(_float_dtype(a))[()]


def nanvar(a: Array, axis: Axis = None, ddof: int = 0) -> Array:
    """Variance without NaN; NaN where there are not more than `ddof` numbers."""
    a = np.asarray(a)
    values, missing = _zeroed(a)
    dtype = _float_dtype(a)
    count = np.sum(~missing, axis=axis, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.sum(values, axis=axis, dtype=dtype, keepdims=True) / count
        squares = np.where(missing, 0, np.abs(values - mean) ** 2)
        freedom = np.sum(~missing, axis=axis) - ddof
        variance = np.sum(squares, axis=axis) / np.where(freedom > 0, freedom, np.nan)
    return np.asarray(variance).astype(np.dtype(dtype.type(0).real.dtype))[()]


def nanstd(a: Array, axis: Axis = None, ddof: int = 0) -> Array:
    """Standard deviation without NaN; NaN where there are not more than `ddof` numbers."""
    return np.sqrt(nanvar(a, axis=axis, ddof=ddof))


def nanmin(a: Array, axis: Axis = None) -> Array:
    """Minimum without NaN; NaN where all are NaN. ValueError on an empty axis."""
    return np.fmin.reduce(np.asarray(a), axis=axis)


def nanmax(a: Array, axis: Axis = None) -> Array:
    """Maximum without NaN; NaN where all are NaN. ValueError on an empty axis."""
    return np.fmax.reduce(np.asarray(a), axis=axis)


def nanargmin(a: Array, axis: Axis = None) -> Array:
    """Index of the minimum without NaN. ValueError where all are NaN."""
    return np.nanargmin(np.asarray(a), axis=axis)


def nanargmax(a: Array, axis: Axis = None) -> Array:
    """Index of the maximum without NaN. ValueError where all are NaN."""
    return np.nanargmax(np.asarray(a), axis=axis)


def median(a: Array, axis: Axis = None) -> Array:
    """Median; NaN where there is a NaN."""
    a = np.asarray(a)
    middle = nanmedian(a, axis=axis)
    return np.where(np.isnan(a).any(axis=axis), np.nan, middle).astype(np.asarray(middle).dtype)[()]


def nanmedian(a: Array, axis: Axis = None) -> Array:
    """Median without NaN; NaN where all are NaN."""
    a = np.asarray(a)
    ordered = np.sort(a, axis=axis)  # NaN comes last
    along = 0 if axis is None else axis
    if ordered.shape[along] == 0:
        return np.full(np.delete(ordered.shape, along), np.nan)[()]
    count = np.sum(~np.isnan(ordered), axis=along, keepdims=True)
    low = np.take_along_axis(ordered, np.maximum(count - 1, 0) // 2, axis=along)
    high = np.take_along_axis(ordered, np.where(count > 0, count // 2, 0), axis=along)
    # Halved before the sum, so that the sum cannot overflow; equal values (infinities too) are kept.
    middle = np.where(low == high, low, low / 2 + high / 2).astype(_float_dtype(a))
    return np.squeeze(middle, axis=along)[()]


def ss(a: Array, axis: Axis = None) -> Array:
    """Sum of squares."""
    a = np.asarray(a)
    return np.sum(a * a, axis=axis)


def anynan(a: Array, axis: Axis = None) -> Array:
    """Whether there is a NaN."""
    return np.isnan(np.asarray(a)).any(axis=axis)


def allnan(a: Array, axis: Axis = None) -> Array:
    """Whether all are NaN."""
    return np.isnan(np.asarray(a)).all(axis=axis)


def replace(a: Array, old: float, new: float) -> None:
    """Replace a value, which may be NaN, in place."""
    if not isinstance(a, np.ndarray):
        raise TypeError("`a` must be a numpy array.")
    np.putmask(a, np.isnan(a) if np.isnan(old) else a == old, new)


def partition(a: Array, kth: int, axis: Axis = -1) -> Array:
    """As numpy.partition."""
    return np.partition(np.asarray(a), kth, axis=axis)


def argpartition(a: Array, kth: int, axis: Axis = -1) -> Array:
    """As numpy.argpartition."""
    return np.argpartition(np.asarray(a), kth, axis=axis)


def rankdata(a: Array, axis: Axis = None) -> Array:
    """Ranks from 1, equal values sharing the mean of theirs."""
    return _rank_along(np.asarray(a), axis)


def nanrankdata(a: Array, axis: Axis = None) -> Array:
    """Ranks from 1 among the numbers, equal values sharing the mean of theirs; NaN stays NaN."""
    a = np.asarray(a)
    flat = a.ravel() if axis is None else a
    return np.where(np.isnan(flat), np.nan, _rank_along(a, axis))


def _rank_along(a: Array, axis: Axis) -> Array:
    if axis is None:
        a, axis = a.ravel(), 0
    if a.size == 0:
        return a.astype(np.float64)
    return np.apply_along_axis(_rank_row, axis, a)


def _rank_row(row: Array) -> Array:
    """Mean ranks of one row: the mean of the first and the last place that a value takes when sorted."""
    ordered = np.sort(row)
    first = np.searchsorted(ordered, row, side="left")
    last = np.searchsorted(ordered, row, side="right")
    return (first + 1 + last) / 2.0


def push(a: Array, n: int | None = None, axis: int = -1) -> Array:
    """Fill NaN with the last number before it, at most `n` places away."""
    a = np.array(a)
    if a.ndim == 0 or a.dtype.kind not in "fc":
        return a
    rows = np.moveaxis(a, axis, -1)
    places = np.arange(rows.shape[-1])
    source = np.maximum.accumulate(np.where(np.isnan(rows), -1, places), axis=-1)
    filled = np.take_along_axis(rows, np.maximum(source, 0), axis=-1)
    reachable = source >= 0
    if n is not None:
        reachable &= places - source <= n
    return np.moveaxis(np.where(reachable, filled, rows), -1, axis)
