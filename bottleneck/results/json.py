"""Results to JSON of version 1, and back: a file becomes records of the right types, or is refused in one sentence.

The keys and their meaning are a contract (`docs/reference/json.md`). Later versions add keys, so unknown ones are
ignored. A file may come from a later version or from an editor; all code outside of this module relies on the
annotations of the records.
"""

from __future__ import annotations

import json
import math
import os
import threading
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache
from numbers import Integral, Real
from typing import Any, NoReturn, TypeVar

import msgspec

from bottleneck.errors import BottleneckError, ResultFileError
from bottleneck.results.comparison import Comparison
from bottleneck.results.evidence import Evidence
from bottleneck.results.files import GIVE_A_RESULT, check_size, read_text, write_file
from bottleneck.results.plan import PlanResult
from bottleneck.results.records import SCHEMA_VERSION, Result
from bottleneck.results.tuning import TuningResult
from bottleneck.results.values import Interval
from bottleneck.results.watched import WatchedResult

Record = TypeVar("Record")

MAX_DEPTH = 64
"""Maximum nesting of objects and lists in the free parts, far more than is ever written."""
_REMEDY = "Update torch-bottleneck if a later version wrote it, or write the result again."
_WRITE_AGAIN = "Write the result again, with `bottleneck diagnose TARGET --json FILE`."
_KINDS = (Result, Comparison, TuningResult, PlanResult, WatchedResult)
_UNCHANGED = frozenset({str, bool, int, type(None)})


# --- writing ----------------------------------------------------------------------------------------------


def save(result: Result, path: str | os.PathLike[str]) -> None:
    """Write a result as JSON, whole or not at all.

    Raises:
        UsageError: The path cannot be written.
    """
    write_file(path, to_json(result) + "\n")


def to_json(result: Result | Comparison | TuningResult | PlanResult | WatchedResult) -> str:
    """Return a record as JSON of version 1, indented by two, its keys in the order of the contract.

    An interval with a bound that is not finite is unknown and becomes null, as do such numbers inside `environment`,
    `pipeline` and `evidence`. Values there that JSON does not support become strings.

    Raises:
        BottleneckError: Another number is not finite, which is a bug.
    """
    kind = next(kind for kind in _KINDS if isinstance(result, kind))
    document = _plain_record(result, kind, "", free=False)  # without the fields that a subclass adds
    try:  # Python's own encoder is slow if it indents
        text = msgspec.json.format(json.dumps(document, ensure_ascii=False, allow_nan=False), indent=2)
    except UnicodeEncodeError:  # lone surrogates, as in a path that is not UTF-8, which JSON can escape
        text = json.dumps(document, indent=2, ensure_ascii=False)
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def plain(value: Any, path: str = "", free: bool = False) -> Any:
    """Return `value` in the types of JSON.

    Args:
        value: A record, or the value of a field.
        path: Path for messages.
        free: True inside a part with arbitrary content, where a number that is not finite becomes null.

    Raises:
        BottleneckError: A number elsewhere is not finite, which is a bug.
    """
    kind = type(value)
    if kind in _UNCHANGED:
        return value
    if kind is Interval:
        bounds = {"estimate": float(value.estimate), "low": float(value.low), "high": float(value.high)}
        return bounds if all(map(math.isfinite, bounds.values())) else None
    if is_dataclass(kind):
        return _plain_record(value, kind, path, free or kind is Evidence)
    if isinstance(value, (list, tuple)):
        return [plain(item, f"{path}[{index}]", free) for index, item in enumerate(value)]
    if isinstance(value, Mapping):
        return {str(key): plain(item, f"{path}.{key}", free=True) for key, item in value.items()}
    if isinstance(value, Integral):  # numpy's numbers are not Python's own
        return int(value)
    if not isinstance(value, Real):
        return str(value)
    number = float(value)
    if math.isfinite(number) or free:
        return number if math.isfinite(number) else None
    raise BottleneckError(
        f"The result cannot be written: {path} is {number}, which JSON cannot represent.",
        "This is a bug in bottleneck; please report it.",
    )


def _plain_record(record: Any, kind: type, path: str, free: bool) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, unknown, default in _fields(kind):
        value = getattr(record, name)
        if unknown is not None and value == default:
            if unknown == "null":
                found[name] = None
        elif type(value) in _UNCHANGED or (type(value) is float and math.isfinite(value)):
            found[name] = value  # results have many blocks: build no path for plain values
        else:
            found[name] = plain(value, f"{path}.{name}".lstrip("."), free)
    return found


@lru_cache(maxsize=128)
def _fields(kind: type) -> tuple[tuple[str, Any, Any], ...]:
    """Return name, JSON form of the default (see `results.evidence`), and default of each field."""
    return tuple((field.name, field.metadata.get("unknown"), field.default) for field in fields(kind))


# --- reading ----------------------------------------------------------------------------------------------


def load(path: str | os.PathLike[str]) -> Result:
    """Read a saved result.

    Raises:
        ResultFileError: The file cannot be read or contains no result of a known version.
    """
    return from_json(read_text(path), source=os.fspath(path))


def from_json(text: str, source: str = "result") -> Result:
    """Return the result in `text`; for a tuning, the diagnosis of the tuned job.

    Args:
        text: JSON of version 1; unknown keys are ignored.
        source: Name of the document, for messages.

    Raises:
        ResultFileError: Not JSON, cut off, not a result, of an unknown version, with a key that is missing or of the
            wrong type, too large or nested too deep.
    """
    saved = saved_from_json(text, source)
    if isinstance(saved, Result):
        return saved
    if isinstance(saved, WatchedResult):
        raise ResultFileError(f"{source} is of a job that was watched and not diagnosed.", GIVE_A_RESULT)
    if saved.after is None:
        raise ResultFileError(f"{source} is a tuning without a diagnosis of the tuned job.", GIVE_A_RESULT)
    return saved.after


def saved_from_json(text: str, source: str = "result") -> Result | TuningResult | WatchedResult:
    """Return the result, the tuning or the watched job in `text`.

    Raises:
        ResultFileError: As `from_json`.
    """
    check_size(len(text), source)
    document = _parse(text, source)
    if not isinstance(document, dict):
        return _converted(document, Result, source)
    _check_version(document, source)
    if document.get("kind") == "watched":
        return _converted(document, WatchedResult, source)
    if document.get("kind") != "tuning":
        _prepare(document, source)
        return _converted(document, Result, source)
    for part in (document, document.get("before"), document.get("after")):
        _prepare(part, source)
    return _converted(document, TuningResult, source)


def _refuse(source: str, what: str, remedy: str = _REMEDY) -> NoReturn:
    raise ResultFileError(f"{source} is not a valid result: {what}.", remedy) from None


def _parse(text: str, source: str) -> Any:
    def finite(number: str) -> float:
        if math.isinf(float(number)):
            _refuse(source, f"it contains the number {number[:20]}, which is too large")
        return float(number)

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):  # readers disagree on which one counts
            keys = [key for key, _ in pairs]
            twice = next(key for key in found if keys.count(key) > 1)
            _refuse(source, f"it contains {twice!r:.40} twice", _WRITE_AGAIN)
        return found

    def not_json(name: str) -> NoReturn:
        _refuse(source, f"it contains {name}, which is not valid JSON", _WRITE_AGAIN)

    if not text.strip():
        raise ResultFileError(f"{source} is empty.", _WRITE_AGAIN)
    try:
        return json.loads(text, parse_float=finite, parse_constant=not_json, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        if error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string"):
            raise ResultFileError(f"{source} is cut off: its JSON ends in line {error.lineno}.", _WRITE_AGAIN) from None
        what = f"{error.msg} in line {error.lineno}, column {error.colno}"
        raise ResultFileError(f"{source} is not JSON: {what}.", GIVE_A_RESULT) from None
    except RecursionError:
        _refuse(source, "it is nested too deep", _WRITE_AGAIN)
    except ValueError:  # Python refuses whole numbers of thousands of digits
        _refuse(source, "it contains a number that is too long", _WRITE_AGAIN)


def _check_version(document: dict[str, Any], source: str) -> None:
    kind, version = document.get("kind"), document.get("schema_version")
    if kind in ("comparison", "plan", "sweep"):
        raise ResultFileError(f"{source} is a {kind}, not the result of one diagnosis.", GIVE_A_RESULT)
    if version is None:
        raise ResultFileError(f"{source} is not a result of bottleneck: it has no schema_version.", GIVE_A_RESULT)
    if isinstance(version, bool) or version != SCHEMA_VERSION:
        raise ResultFileError(
            f"{source} has schema_version {repr(version)[:20]}, but this version of bottleneck reads {SCHEMA_VERSION}.",
            "Update bottleneck with `pip install -U torch-bottleneck`, or write the result again with this version.",
        )


def _prepare(document: Any, source: str) -> None:
    """Refuse free parts that are nested too deep; replace nulls in the evidence by defaults."""
    for part in ("environment", "pipeline", "advice", "evidence") if isinstance(document, dict) else ():
        if part in document:
            try:
                document[part] = _checked(document[part], MAX_DEPTH, nulls=part != "evidence")
            except RecursionError:
                _refuse(source, f"{part} is nested too deep")


def _checked(value: Any, levels: int, *, nulls: bool) -> Any:
    if levels < 0:
        raise RecursionError
    if isinstance(value, dict):
        kept = value.items() if nulls else [(key, item) for key, item in value.items() if item is not None]
        return {key: _checked(item, levels - 1, nulls=nulls) for key, item in kept}
    return [_checked(item, levels - 1, nulls=nulls) for item in value] if isinstance(value, list) else value


_CONVERTING = threading.Lock()
"""msgspec describes a class at its first use, and crashes if two threads do so at the same time."""


def _converted(document: Any, kind: type[Record], source: str) -> Record:
    try:
        with _CONVERTING:
            return msgspec.convert(document, kind)
    except msgspec.ValidationError as error:  # such as 'Expected `float`, got `str` - at `$.cost.seconds`'
        what, _, path = str(error).partition(" - at `$")
        place = path.rstrip("`").lstrip(".")
        _refuse(source, f"{place or 'the whole document'}: {what[:1].lower()}{what[1:80]}")
    except UnicodeEncodeError:
        _refuse(source, "it contains a key that is not text")
