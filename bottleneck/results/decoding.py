"""The border: records from parsed JSON of version 1, of the right types and finite, or one sentence on what is wrong.

A saved result may come from a later version, or from an editor. Past this border all code relies on the annotations of
the records.
"""

from __future__ import annotations

import math
import re
from typing import Any, TypeVar

import msgspec

from bottleneck.errors import ResultFileError
from bottleneck.results.evidence import Evidence
from bottleneck.results.records import Result
from bottleneck.results.tuning import TuningResult

Record = TypeVar("Record")

MAX_DEPTH = 64
"""Objects and lists may be nested this deep; far beyond what is ever written."""
REMEDY = "Write the result again with `bottleneck diagnose TARGET --json FILE`."


def read_result(document: Any, source: str) -> Result:
    """The result in a document whose version has been checked; its content is changed.

    Raises:
        ResultFileError: A key is missing or has a value of the wrong type, or one that is nested too deep.
    """
    _prepare(document, source)
    return _decode(document, Result, source)


def read_tuning(document: Any, source: str) -> TuningResult:
    """The tuning in a document whose version has been checked; its content is changed.

    Raises:
        ResultFileError: As `read_result`.
    """
    for part in (document, document.get("before"), document.get("after")):
        _prepare(part, source)
    return _decode(document, TuningResult, source)


def _prepare(document: Any, source: str) -> None:
    """Refuse what is nested too deep, and let defaults stand for what is null in the evidence.

    Where the content is not fixed, a number too large for a float, such as 1e999, is none, as it is when it is written.
    """
    if not isinstance(document, dict):
        return
    for part in ("environment", "pipeline", "advice", "evidence"):
        if _is_deeper(document.get(part), MAX_DEPTH):
            raise ResultFileError(f"{source} is not a valid result: {part} is nested too deep.", REMEDY)
    for part in ("environment", "pipeline", "advice"):
        if part in document:
            document[part] = _finite(document[part])
    if "evidence" in document:
        document["evidence"] = _without_nulls(document["evidence"])


def read_evidence(document: Any) -> Evidence:
    """The evidence in plain values.

    Raises:
        ResultFileError: A key has a value of the wrong type.
    """
    return _decode(_without_nulls(document), Evidence, "The evidence")


def _decode(document: Any, kind: type[Record], source: str) -> Record:
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        raise _refusal(str(error), source) from None
    except UnicodeEncodeError:
        raise ResultFileError(f"{source} is not a valid result: it holds a key that is no text.", REMEDY) from None


def _without_nulls(value: Any) -> Any:
    """A value without its keys that are null, so that a part of the evidence then holds its default."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _finite(value: Any) -> Any:
    """A value with null in the place of each number that is not finite."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _is_deeper(value: Any, levels: int) -> bool:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(levels == 0 or _is_deeper(item, levels - 1) for item in inside)


def _refusal(text: str, source: str) -> ResultFileError:
    """The error for a message of msgspec's, such as 'Expected `float`, got `str` - at `$.cost.seconds`'."""
    what, _, path = text.partition(" - at `$")
    place = path.removesuffix("`").lstrip(".")
    if missing := re.fullmatch(r"Object missing required field `(\w+)`", what):
        return ResultFileError(
            f"{source} is not a valid result: {f'{place}.{missing[1]}'.lstrip('.')} is missing.", REMEDY
        )
    return ResultFileError(
        f"{source} is not a valid result: {place or 'the whole document'}: {what[:1].lower()}{what[1:80]}.",
        "Update torch-bottleneck if a later version wrote it, or write the result again."
        if what.startswith("Invalid enum value")
        else REMEDY,
    )
