"""The border: records from parsed JSON of version 1, of the right types and finite, or one sentence on what is wrong.

A saved result comes from anywhere, also from a later version or an editor. Whoever works with a record relies on what
its annotations say.
"""

from __future__ import annotations

import re
from typing import Any, Literal, TypeVar, get_args, get_type_hints

import msgspec

from bottleneck.errors import ResultFileError
from bottleneck.results.evidence import Evidence
from bottleneck.results.records import Advice, Result, Stage, Verdict
from bottleneck.results.values import MAX_COUNT

Record = TypeVar("Record")

MAX_DEPTH = 64
"""Objects and lists may be nested this deep; far beyond what is ever written."""
REMEDY = "Write the result again with `bottleneck diagnose TARGET --json FILE`."

_WANTED = {
    "object": "an object",
    "array": "a list",
    "str": "a string",
    "bool": "true or false",
    "int": "a whole number of zero or more",
    "float": "a number",
    "int | float": "a number",
}
_FOUND = _WANTED | {"int": "a number", "null": "null"}


def read_result(document: Any, source: str) -> Result:
    """The result in a document whose version has been checked; its content is changed.

    Raises:
        ResultFileError: A key is missing or has a value of the wrong type, or one that is nested too deep.
    """
    if isinstance(document, dict):
        for part in ("environment", "pipeline", "advice", "evidence"):
            _check_depth(document.get(part), part, source)
        if "evidence" in document:
            document["evidence"] = _known(document["evidence"])
        for part in ("experiments", "without"):
            _complete_blocks(document.get(part))
    return decode(document, Result, source)


def read_evidence(document: Any) -> Evidence:
    """The evidence in plain values.

    Raises:
        ResultFileError: A key has a value of the wrong type.
    """
    return decode(_known(document), Evidence, "The evidence")


def decode(document: Any, kind: type[Record], source: str) -> Record:
    """The record that a document holds.

    Raises:
        ResultFileError: It holds something else.
    """
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        raise _refusal(str(error), source) from None
    except UnicodeEncodeError:
        raise ResultFileError(f"{source} is not a valid result: it holds a key that is no text.", REMEDY) from None


def _known(value: Any) -> Any:
    """A value without the keys that are null: what is not known is not there."""
    if isinstance(value, dict):
        return {key: _known(item) for key, item in value.items() if item is not None}
    return [_known(item) for item in value] if isinstance(value, list) else value


def _complete_blocks(rows: Any) -> None:
    """Say of blocks how many batches they had: the contract promises that of the rate beside them."""
    try:
        for rate in (rate for row in rows for rate in row.values() if isinstance(rate, dict)):
            for block in rate["blocks"]:
                if block.get("batches") is None:
                    size = max(1.0, rate["samples_per_s"] * rate["seconds_per_batch"])
                    block["batches"] = max(1, round(block["samples"] / size)) if block["samples"] else 0
    except (AttributeError, KeyError, TypeError, ArithmeticError, ValueError):
        return  # decoding says what is wrong


def _check_depth(value: Any, place: str, source: str) -> None:
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        level = [
            inside
            for outer in level
            if isinstance(outer, (dict, list))
            for inside in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return
    raise ResultFileError(f"{source} is not a valid result: {place} is nested too deep.", REMEDY)


# --- what is wrong, for people ------------------------------------------------------------------------------


def _refusal(text: str, source: str) -> ResultFileError:
    """The sentence that names the place, made from msgspec's message, such as

    Expected `float`, got `str` - at `$.experiments[2].coupled.low`.
    """
    what, _, path = text.partition(" - at `$")
    place = path.removesuffix("`").lstrip(".")
    if missing := re.fullmatch(r"Object missing required field `(\w+)`", what):
        place = f"{place}.{missing[1]}".lstrip(".")
        return ResultFileError(f"{source} is not a valid result: {place} is missing.", REMEDY)
    remedy = REMEDY
    if what.startswith("Invalid enum value"):
        wanted = f"one of {', '.join(map(repr, _choices(place)))}, not {what.removeprefix('Invalid enum value ')[:40]}"
        remedy = "Update torch-bottleneck if a later version wrote it, or write the result again."
    elif got := re.fullmatch(r"Expected `(int \| float|\w+)[^`]*`, got `(\w+)`", what):
        wanted = f"{_WANTED.get(got[1], got[1])}, not {_FOUND.get(got[2], got[2])}"
    else:
        wanted = _limit(what)
    return ResultFileError(f"{source} is not a valid result: {place or 'the whole document'} must be {wanted}.", remedy)


def _choices(place: str) -> tuple[str, ...]:
    """The words that a field may hold, by the last key of its place."""
    hints = {**get_type_hints(Stage), **get_type_hints(Verdict), **get_type_hints(Advice)}
    hint = hints.get(place.rpartition(".")[2])
    inside = (hint, *get_args(hint))
    return next((get_args(one) for one in inside if getattr(one, "__origin__", None) is Literal), ())


def _limit(what: str) -> str:
    """The limit that a value is beyond."""
    if what.startswith("Expected `int`"):
        return "a whole number of zero or more" if ">=" in what else f"a whole number of at most {MAX_COUNT}"
    if what.startswith("Expected `float` >= 0"):
        return "zero or more"
    if what.startswith("Expected `float`") or what == "Number out of range":
        return "a finite number"
    return "what bottleneck writes there: " + what.replace("`", "").removeprefix("Expected ")
