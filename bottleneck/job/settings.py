"""Values from the command line: `KEY=VALUE` settings of a pipeline, durations and sizes. Needs no torch."""

from __future__ import annotations

import ast
import difflib
import math
import re
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from bottleneck.errors import UsageError

COUNTS = {"batch_size": 64, "num_workers": 4, "prefetch_factor": 2}
"""DataLoader arguments that are whole numbers, each with an example."""
FLAGS = ("shuffle", "pin_memory", "drop_last", "persistent_workers", "in_order")
_TEXTS = {"multiprocessing_context": "spawn", "pin_memory_device": "cuda", "device": "cuda:0"}
_OPTIONAL = ("batch_size", "prefetch_factor", "shuffle", "multiprocessing_context", "device", "augment")
_OBJECTS = (
    *("dataset", "collate_fn", "model", "loss_fn", "optimizer", "train_step", "to_device"),
    *("sampler", "batch_sampler", "worker_init_fn", "generator"),
)
_SETTABLE = (*COUNTS, *FLAGS, "timeout", *_TEXTS, "augment")

_WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False, "none": None}


def parse_settings(texts: Iterable[str]) -> dict[str, Any]:
    """Pipeline fields from `KEY=VALUE` texts; the last one of a key counts.

    Returns:
        Arguments for `Pipeline.replace`.

    Raises:
        UsageError: Not of this form, an unknown key, or a value of the wrong type.
    """
    return dict(parse_setting(text) for text in texts)


def parse_setting(text: str) -> tuple[str, Any]:
    """One pipeline field from `KEY=VALUE`, its value as Python has it.

    Values are whole numbers, numbers, true/false/yes/no/on/off, none, and Python literals; whatever is
    none of these is text, which may be quoted.

    Raises:
        UsageError: Not of this form, an unknown key, or a value of the wrong type.
    """
    key, separator, value_text = text.partition("=")
    key = key.strip().replace("-", "_")
    if not separator or not key:
        raise UsageError(f"--set {text!r} is not KEY=VALUE.", "Write for example --set num_workers=8.")
    _check_key(key)
    return key, _typed(key, parse_value(value_text))


def parse_value(text: str) -> Any:
    """A word such as true or none, a Python literal, or else the text itself."""
    text = text.strip()
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def _check_key(key: str) -> None:
    if key in _SETTABLE or key in _OBJECTS:
        return
    near = difflib.get_close_matches(key.lower(), _SETTABLE, n=1, cutoff=0.6)
    remedy = f"Did you mean {near[0]!r}?" if near else f"What can be set: {', '.join(_SETTABLE)}."
    raise UsageError(f"--set knows no {key!r}.", remedy)


def _typed(key: str, value: Any) -> Any:
    """The value if it has the type of its field; 0 and 1 stand for false and true."""
    if key in _OBJECTS:
        if value is None and key not in ("dataset", "model"):
            return None
        raise UsageError(
            f"--set {key} cannot be given as text: it is a Python object.",
            "Change it in the function that builds the pipeline.",
        )
    if value is None and key in _OPTIONAL:
        return None
    if key in FLAGS:
        if isinstance(value, bool) or (isinstance(value, int) and value in (0, 1)):
            return bool(value)
        raise _wrong_type(key, value, "true or false", "true")
    if key in COUNTS:
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        raise _wrong_type(key, value, "a whole number", str(COUNTS[key]))
    if key == "timeout":
        if isinstance(value, int | float) and not isinstance(value, bool):
            return value
        raise _wrong_type(key, value, "a number of seconds", "30")
    return _text(key, value)


def _text(key: str, value: Any) -> Any:
    if isinstance(value, str) and value:
        return value
    if key == "device" and isinstance(value, int) and not isinstance(value, bool):
        return value  # as torch.device takes it
    if key == "augment" and isinstance(value, tuple | list) and all(isinstance(v, str) for v in value):
        return tuple(value)
    raise _wrong_type(key, value, "text", _TEXTS.get(key, "transform"))


def _wrong_type(key: str, value: Any, wanted: str, example: str) -> UsageError:
    return UsageError(f"--set {key} must be {wanted}, not {value!r}.", f"Write --set {key}={example}.")


_UNIT_SECONDS = {"h": 3600.0, "m": 60.0, "min": 60.0, "s": 1.0, "ms": 0.001, "": 1.0}
_LONGEST_S = 1e12  # a whole number of any size does not fit into a float
_DURATION = re.compile(r"(?:\d+(?:\.\d*)?|\.\d+)\s*(?:h|min|ms|m|s)")
_DURATION_PART = re.compile(r"([\d.]+)\s*([a-z]*)")


def parse_duration(value: str | float) -> float:
    """A duration in seconds from '90s', '2m', '1m30s', '1.5h', '120' or a number of seconds.

    Raises:
        UsageError: Not a duration, or not more than nothing.
    """
    seconds = _duration_seconds(value)
    wrong = "is not a duration" if seconds is None or not math.isfinite(seconds) else "must be more than 0"
    if seconds is None or not 0 < seconds < math.inf:
        raise UsageError(f"{value!r} {wrong}.", "Write for example 90s, 2m or 1m30s; a plain number is seconds.")
    return seconds


def _duration_seconds(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    if not isinstance(value, str):
        return float(value) if abs(value) < _LONGEST_S else None
    text = value.strip().lower()
    if re.fullmatch(r"\d+(\.\d*)?|\.\d+", text):
        return float(text)
    if not re.fullmatch(rf"(?:{_DURATION.pattern}\s*)+", text):
        return None
    return sum(float(n) * _UNIT_SECONDS[unit] for n, unit in _DURATION_PART.findall(text))


LARGEST_BYTES = 2**53 - 1
_UNIT_BYTES = {
    "": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip
_SIZE = re.compile(r"(\d{1,20}(?:\.\d{0,20})?|\.\d{1,20})\s*([a-z]*)", re.ASCII)


def parse_size(text: str) -> int:
    """An amount of memory in bytes from '8GiB', '500MB', '1.5 GB' or '1000000'.

    Raises:
        UsageError: Not such an amount, or less than a byte.
    """
    found = _SIZE.fullmatch(text.strip().lower())
    unit = _UNIT_BYTES.get(found[2]) if found else None
    nbytes = 0 if found is None or unit is None else int(Decimal(found[1]) * unit)
    if not 1 <= nbytes <= LARGEST_BYTES:
        raise UsageError(
            f"{text!r} is not an amount of memory.", "Write for example 8GiB or 500MB; a plain number is bytes."
        )
    return nbytes
