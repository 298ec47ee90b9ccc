"""Numbers for people: percentages, gains, counts, sizes and durations, with their intervals.

Standard library only. Every function takes SI units or ratios and returns text; an unknown value is a dash.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeGuard

from bottleneck.results.records import Interval, Rate
from bottleneck.results.values import LARGEST

UNKNOWN = "–"

_MINUS = "−"
_MAX_OF_WHOLE = 10.0
_WIDE = 0.5
"""Half width of an interval over its value, above which the value alone would claim too much."""
_HOPELESS = 100.0
"""Upper end of an interval over its value, above which the interval says nothing."""


def known(value: float | None) -> TypeGuard[float]:
    """Return True if a number was measured; not-a-number was not."""
    return value is not None and abs(value) < LARGEST


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


def count(value: float | None) -> str:
    """Return a count or a rate: whole from 100 on, three significant digits below it."""
    if not known(value):
        return UNKNOWN
    return number(value) if abs(value) >= 99.95 else significant(value, 3)


def whole(value: float | None) -> str:
    """Return a whole number with thousands separators."""
    return number(value) if known(value) else UNKNOWN


def frequency(value: float | None) -> str:
    """Return a frequency per sample, such as `1` or `0.44`."""
    if not known(value):
        return UNKNOWN
    return bare(round(value, 2)) if 0.01 <= value < 99.95 else count(value)


def bare(value: float) -> str:
    """Return a number for a program to read: four significant digits, no separator, no exponent."""
    text = f"{float(f'{value:.4g}'):.6f}"
    return text.rstrip("0").rstrip(".")


def percent(fraction: float | None, decimals: int | None = None) -> str:
    """Return a fraction of one as a percentage; below ten per cent it gets a decimal."""
    if not known(fraction):
        return UNKNOWN
    if decimals is None:
        decimals = 1 if abs(fraction) < 0.0995 else 0
    return f"{number(100 * fraction, decimals)} %"


def percent_interval(interval: Interval | None) -> str:
    """Return fractions of one as `38 % (36–40 %)`; with another decimal if the bounds would look equal.

    A bound beyond ten times the whole means only that too little was measured, which the text says.
    """
    if interval is None or not known(interval.estimate):
        return UNKNOWN
    if not all(abs(bound) <= _MAX_OF_WHOLE for bound in (interval.low, interval.high)):
        return f"{percent(interval.estimate)} (interval unknown)"
    decimals = 1 if abs(interval.estimate) < 0.0995 or round(100 * (interval.high - interval.low)) < 2 else 0
    low, high = (number(100 * bound, decimals) for bound in (interval.low, interval.high))
    return f"{percent(interval.estimate, decimals)} ({_span(low, high)} %)"


def gain(factor: float, decimals: int | None = None) -> str:
    """Return a factor of throughput, such as `2.3x`; with a second decimal below two."""
    if decimals is None:
        decimals = 2 if abs(factor) < 1.95 else 1
    return f"{number(factor, decimals)}x"


def gain_interval(interval: Interval | None) -> str:
    """Return factors of throughput as `2.3x (2.2–2.4)`; with another decimal if the bounds would look equal.

    A bound of 100 or more, which two rounds may give, is `100+`, because its digits mean nothing.
    """
    if interval is None or not known(interval.estimate):
        return UNKNOWN
    if not known(interval.low) or math.isnan(interval.high):
        return gain(interval.estimate)
    decimals = 2 if abs(interval.estimate) < 1.95 or interval.high - interval.low < 0.15 else 1
    low, high = ("100+" if bound >= 100 else number(bound, decimals) for bound in (interval.low, interval.high))
    return f"{gain(interval.estimate, decimals)} ({_span(low, high)})"


def rate_with_half_width(measured: Rate | None) -> str:
    """Return a throughput with half its interval, `1,702 ± 12`; without it where one block leaves none.

    Where little more than the order is known, both ends say more: `290–2,310`, or `< 2,310`. Where that is not known
    either, as by two blocks of which one was disturbed, there is the mean alone: `about 850`.
    """
    if measured is None or not known(measured.samples_per_s):
        return UNKNOWN
    half_width = (measured.high - measured.low) / 2
    if not 0 < half_width < LARGEST:
        return count(measured.samples_per_s)
    if half_width >= _WIDE * measured.samples_per_s:
        low = max(0.0, measured.low)
        if measured.high > _HOPELESS * measured.samples_per_s:
            return f"about {count(measured.samples_per_s)}"
        return f"{count(low)}–{count(measured.high)}" if low > 0 else f"< {count(measured.high)}"
    # Digits beyond the second of the uncertainty mean nothing.
    decimals = min(3, max(0, 1 - math.floor(math.log10(half_width))))
    if measured.samples_per_s >= 99.95:
        decimals = 0 if half_width >= 0.95 else min(decimals, 1)
    return f"{number(measured.samples_per_s, decimals)} ± {number(half_width, decimals)}"


def duration(seconds: float | None) -> str:
    """Return a time with at most three digits in a suitable unit: `24.7 ms`, `1.20 s`."""
    if not known(seconds):
        return UNKNOWN
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if abs(seconds) >= 0.9995 * size:
            return f"{significant(seconds / size)} {unit}"
    if abs(seconds) >= 5e-5:
        return f"{number(seconds * 1e3, 2)} ms"
    if abs(seconds) < 5e-10:
        return "0 µs"
    return f"{significant(seconds * 1e6, 2)} µs"


def duration_interval(interval: Interval | None) -> str:
    """Return a time with its interval in one unit, such as `14.1 ms (13.8–14.4)`."""
    if interval is None or not known(interval.estimate):
        return UNKNOWN
    if not (known(interval.low) and known(interval.high)):
        return duration(interval.estimate)
    # The widest of the three numbers chooses the unit, so that none needs many digits.
    size, unit = _time_unit(max(abs(interval.estimate), abs(interval.low), abs(interval.high)))
    values = [value / size for value in (interval.estimate, interval.low, interval.high)]
    decimals = _time_decimals(values[0], unit)
    if interval.low < interval.high and round(values[1], decimals) == round(values[2], decimals):
        decimals += 1  # the bounds would look equal
    estimate, low, high = (number(value, decimals) for value in values)
    return f"{estimate} {unit} ({_span(low, high)})"


def time_interval(interval: Interval | None) -> str:
    """Return a time that cannot be negative: `14.1 ms (13.8–14.4)`, or `< 0.37 ms` if it may be zero."""
    if interval is None or not known(interval.estimate) or not known(interval.high):
        return UNKNOWN
    if known(interval.low) and interval.low > 0:
        return duration_interval(interval)
    return at_most(max(interval.estimate, interval.high))


def at_most(seconds: float) -> str:
    """Return an upper bound of a time, or zero."""
    return f"< {duration(seconds)}" if seconds > 0 else duration(0.0)


def long_duration(seconds: float | None) -> str:
    """Return a duration of the diagnosis itself, such as `47 s` or `2 min 5 s`."""
    if not known(seconds):
        return UNKNOWN
    if seconds < 59.5:
        return f"{number(seconds, 1 if seconds < 9.95 else 0)} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes:,} min {rest} s"


def size(size_bytes: float | None) -> str:
    """Return an amount of memory, such as `1.20 GiB`."""
    if not known(size_bytes):
        return UNKNOWN
    value = float(size_bytes)
    units = ["bytes", "KiB", "MiB", "GiB", "TiB"]
    while abs(value) >= 999.5 and len(units) > 1:
        value, units = value / 1024, units[1:]
    return f"{number(value) if units[0] == 'bytes' else significant(value)} {units[0]}"


def cache_option(nbytes: float) -> str:
    """Return the option for the memory of caches: '--cache-bytes 800MiB (in Python: cache_bytes=800 << 20)'."""
    mebibytes = math.ceil(nbytes / 2**20)
    return f"--cache-bytes {mebibytes}MiB (in Python: cache_bytes={mebibytes} << 20)"


def names(items: Sequence[str]) -> str:
    """Return an enumeration for a sentence: `load`, `load and collate`, `load, collate and copy`."""
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"


def plural(amount: int, noun: str) -> str:
    """Return an amount with its noun, such as `1 round`, `1,200 rounds` or `2 batches`."""
    ending = "es" if noun.endswith(("ch", "s", "x")) else "s"
    return f"{number(amount)} {noun}{'' if amount == 1 else ending}"


def _time_unit(seconds: float) -> tuple[float, str]:
    if seconds >= 0.9995:
        return 1.0, "s"
    return (1e-3, "ms") if seconds >= 5e-5 or seconds == 0 else (1e-6, "µs")


def _time_decimals(value: float, unit: str) -> int:
    if abs(value) >= 99.95:
        return 0
    if unit == "s":
        return 1 if abs(value) >= 9.95 else 2
    return 1 if abs(value) >= 0.95 else 2


def _span(low: str, high: str) -> str:
    """Join two bounds by a dash, or by a word if a minus sign would make the dash hard to read."""
    return f"{low} to {high}" if _MINUS in low + high else f"{low}–{high}"
