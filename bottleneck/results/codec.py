"""Results to JSON of version 1, and back.

The keys and their meaning are a contract (`docs/reference/json.md`). Later versions add keys, so that unknown ones are
ignored in reading; an unknown `schema_version` is refused.
"""

from __future__ import annotations

import json
import os
from typing import Any, NoReturn

from bottleneck.errors import ResultFileError
from bottleneck.results.comparison import Comparison
from bottleneck.results.decoding import REMEDY, read_result, read_tuning
from bottleneck.results.encoding import indented, plain_document
from bottleneck.results.files import GIVE_A_RESULT, check_size, read_text, write_text
from bottleneck.results.records import (
    SCHEMA_VERSION,
    Block,
    MeasuredExperiment,
    MeasuredWithout,
    Measurement,
    Rate,
    Result,
    StageSpan,
)
from bottleneck.results.tuning import TuningResult

# --- writing ----------------------------------------------------------------------------------------------


def to_json(result: Result | Comparison | TuningResult) -> str:
    """A record as JSON of version 1, indented by two, its keys in the order of the contract.

    An interval with a bound that is not finite is unknown and becomes null, as does such a number inside
    `environment`, `pipeline` and `evidence`. Values there that JSON does not know become strings.

    Raises:
        BottleneckError: Another number is not finite; a fault of ours.
    """
    record = next(
        kind for kind in (Result, Comparison, TuningResult) if isinstance(result, kind)
    )  # not what adds to it
    text = indented(plain_document(result, record))
    # A path that is not UTF-8 holds lone surrogates, which no file takes; JSON escapes them as Python does.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def save(result: Result, path: str | os.PathLike[str]) -> None:
    """Write a result as JSON, whole or not at all.

    Raises:
        UsageError: The path cannot be written.
    """
    write_text(path, to_json(result) + "\n")


# --- reading ----------------------------------------------------------------------------------------------


def load(path: str | os.PathLike[str]) -> Result:
    """Read a saved result.

    Raises:
        ResultFileError: The file cannot be read or holds no result of a known version.
    """
    return from_json(read_text(path), source=os.fspath(path))


def from_json(text: str, source: str = "result") -> Result:
    """The result that `text` holds.

    Args:
        text: JSON of version 1; keys it does not know are ignored.
        source: The name of the document, for messages.

    Raises:
        ResultFileError: Not JSON, cut off, no result, an unknown version, a key that is missing or of the
            wrong type, too large or nested too deep.
    """
    saved = saved_from_json(text, source)
    return _tuned(saved, source) if isinstance(saved, TuningResult) else saved


def saved_from_json(text: str, source: str = "result") -> Result | TuningResult:
    """The result or the tuning that `text` holds.

    Raises:
        ResultFileError: As `from_json`.
    """
    check_size(len(text), source)
    document = _parse(text, source)
    _check_version(document, source)
    if isinstance(document, dict) and document.get("kind") == "tuning":
        return read_tuning(document, source)
    return read_result(document, source)


def _tuned(tuning: TuningResult, source: str) -> Result:
    """The diagnosis of the tuned job: what a tuning stands for where one diagnosis is asked for."""
    if tuning.after is None:
        raise ResultFileError(f"{source} is a tuning without a diagnosis of the tuned job.", GIVE_A_RESULT)
    return tuning.after


def _parse(text: str, source: str) -> Any:
    def refuse_constant(name: str) -> NoReturn:
        raise ResultFileError(f"{source} is not a valid result: it holds {name}, which JSON does not know.", REMEDY)

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):  # readers disagree on which of them counts
            keys = [key for key, _ in pairs]
            twice = next(key for key in found if keys.count(key) > 1)
            raise ResultFileError(f"{source} is not a valid result: it holds {twice!r:.40} twice.", REMEDY)
        return found

    if not text.strip():
        raise ResultFileError(f"{source} is empty.", REMEDY)
    try:
        return json.loads(text, parse_constant=refuse_constant, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        if error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string"):
            raise ResultFileError(f"{source} is cut off: its JSON ends in line {error.lineno}.", REMEDY) from None
        raise ResultFileError(
            f"{source} is not JSON: {error.msg} in line {error.lineno}, column {error.colno}.", GIVE_A_RESULT
        ) from None
    except RecursionError:
        raise ResultFileError(f"{source} is not a valid result: it is nested too deep.", REMEDY) from None
    except ValueError:  # Python refuses whole numbers of thousands of digits
        raise ResultFileError(f"{source} is not a valid result: it holds a number that is too long.", REMEDY) from None


def _check_version(document: Any, source: str) -> None:
    if not isinstance(document, dict):
        return  # reading it says what it is instead
    kind = document.get("kind")
    if kind in ("comparison", "sweep"):
        raise ResultFileError(f"{source} is a {kind}, not the result of one diagnosis.", GIVE_A_RESULT)
    version = document.get("schema_version")
    if version is None:
        raise ResultFileError(f"{source} is not a result of bottleneck: it has no schema_version.", GIVE_A_RESULT)
    if isinstance(version, bool) or version != SCHEMA_VERSION:
        raise ResultFileError(
            f"{source} has schema_version {repr(version)[:20]}, and this version of bottleneck reads {SCHEMA_VERSION}.",
            "Update it with `pip install -U torch-bottleneck`, or write the result again with this version.",
        )


# --- back to what was measured ----------------------------------------------------------------------------


def to_measurement(result: Result) -> Measurement:
    """What was measured, without what was concluded: its statistics can be derived again.

    The warnings stay, also those that an analysis added: a record does not say who wrote it.
    """
    return Measurement(
        created=result.created,
        environment=result.environment,
        pipeline=result.pipeline,
        experiments=tuple(
            MeasuredExperiment(
                name=e.name,
                available=e.available,
                reason=e.reason,
                coupled=_blocks(e.coupled),
                drained=_blocks(e.drained),
                workers=_blocks(e.workers),
                serving=_blocks(e.serving),
            )
            for e in result.experiments
        ),
        without=tuple(MeasuredWithout(w.stage, _blocks(w.coupled), _blocks(w.workers)) for w in result.without),
        stages=tuple(StageSpan(s.name, s.inner, s.outer, s.wall_s_per_batch, s.cpu_s_per_batch) for s in result.stages),
        evidence=result.evidence,
        warnings=result.warnings,
        cost=result.cost,
        ranks=result.ranks,
    )


def _blocks(rate: Rate | None) -> tuple[Block, ...]:
    return rate.blocks if rate else ()
