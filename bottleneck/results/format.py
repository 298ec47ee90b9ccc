"""Numbers as people read them: percentages, gains, counts and durations, with their intervals.

Standard library only. Every helper takes SI units or plain ratios and returns text.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from bottleneck.results.records import Interval

_MINUS = "−"


_MOST_OF_THE_WHOLE = 10.0


def number(value: float, decimals: int = 0) -> str:
    """Return `value` with thousands separators, a true minus sign and no negative zero."""
    text = f"{value:,.{decimals}f}"
    if text.startswith("-"):
        text = text[1:] if not any(digit in "123456789" for digit in text) else _MINUS + text[1:]
    return text


def significant(value: float, digits: int = 3) -> str:
    """Return `value` rounded to `digits` significant digits, never in scientific notation."""
    if value == 0 or not math.isfinite(value):
        return number(value)
    decimals = digits - 1 - math.floor(math.log10(abs(value)))
    return number(value, max(0, min(decimals, 9)))


def count(value: float) -> str:
    """A count or a rate: whole from 100 on, three significant digits below it."""
    return number(value) if abs(value) >= 99.95 else significant(value, 3)


def percent(fraction: float, decimals: int | None = None) -> str:
    """A fraction of one as a percentage; below ten per cent it gets a decimal."""
    if decimals is None:
        decimals = 1 if abs(fraction) < 0.0995 else 0
    return f"{number(100 * fraction, decimals)} %"


def percent_interval(interval: Interval) -> str:
    """Fractions of one as `38 % (36–40 %)`; a decimal more where the bounds would look alike.

    A bound beyond ten times the whole says only that too little was measured, and so does the text.
    """
    if max(abs(interval.low), abs(interval.high)) > _MOST_OF_THE_WHOLE:
        return f"{percent(interval.estimate)} (nothing sure yet)"
    decimals = 1 if abs(interval.estimate) < 0.0995 or round(100 * (interval.high - interval.low)) < 2 else 0
    low, high = (number(100 * bound, decimals) for bound in (interval.low, interval.high))
    return f"{percent(interval.estimate, decimals)} ({_span(low, high)} %)"


def gain(factor: float, decimals: int | None = None) -> str:
    """A factor of throughput, such as `2.3x`; below two it gets a second decimal."""
    if decimals is None:
        decimals = 2 if abs(factor) < 1.95 else 1
    return f"{number(factor, decimals)}x"


def gain_interval(interval: Interval) -> str:
    """Factors of throughput as `2.3x (2.2–2.4)`; a decimal more where the bounds would look alike.

    A bound from 100 on, as two rounds give it, is `100+`: its digits would say nothing.
    """
    decimals = 2 if abs(interval.estimate) < 1.95 or interval.high - interval.low < 0.15 else 1
    low, high = ("100+" if bound >= 100 else number(bound, decimals) for bound in (interval.low, interval.high))
    return f"{gain(interval.estimate, decimals)} ({_span(low, high)})"


def duration(seconds: float) -> str:
    """A time with three digits at most, in the unit that suits it: `24.7 ms`, `1.20 s`."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if abs(seconds) >= 0.9995 * size:
            return f"{significant(seconds / size)} {unit}"
    if abs(seconds) >= 5e-5:
        return f"{number(seconds * 1e3, 2)} ms"
    return f"{significant(seconds * 1e6, 2)} µs"


def size(size_bytes: float) -> str:
    """Return an amount of memory with three digits at most, in powers of 1024: `370 MiB`, `1.20 GiB`."""
    units = ["bytes", "KiB", "MiB", "GiB", "TiB"]
    while abs(size_bytes) >= 999.5 and len(units) > 1:
        size_bytes, units = size_bytes / 1024, units[1:]
    return f"{number(size_bytes) if units[0] == 'bytes' else significant(size_bytes)} {units[0]}"


def cache_option(nbytes: float) -> str:
    """How the memory for caches is given: '--cache-bytes 800MiB (in Python: cache_bytes=800 << 20)'."""
    mebibytes = math.ceil(nbytes / 2**20)
    return f"--cache-bytes {mebibytes}MiB (in Python: cache_bytes={mebibytes} << 20)"


def names(items: Sequence[str]) -> str:
    """An enumeration for a sentence: `load`, `load and collate`, `load, collate and copy`."""
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"


def plural(amount: int, noun: str) -> str:
    """An amount with its noun, such as `1 round` or `1,200 rounds`."""
    return f"{number(amount)} {noun}{'' if amount == 1 else 's'}"


def _span(low: str, high: str) -> str:
    """Join two bounds by a dash, or by a word where a minus sign would make the dash hard to read."""
    return f"{low} to {high}" if _MINUS in low + high else f"{low}–{high}"
