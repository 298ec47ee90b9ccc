"""Full results that were measured and are kept, and what an analysis concludes from them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from tests.locks.doors import analyse, from_json, to_json

KEPT = sorted((Path(__file__).parent / "results").glob("*.json.gz"))


def read(path: Path) -> dict[str, Any]:
    return json.loads(gzip.decompress(path.read_bytes()))


def write(path: Path, document: dict[str, Any]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress(json.dumps(document, separators=(",", ":")).encode(), mtime=0))


def analysed_again(document: dict[str, Any]) -> dict[str, Any]:
    """The result of another analysis of what was measured.

    It keeps the warnings that it is given, also those that an analysis wrote, and then writes these once more.
    """
    again = json.loads(to_json(analyse(from_json(json.dumps(document)))))
    again["warnings"] = [each for n, each in enumerate(again["warnings"]) if each not in again["warnings"][:n]]
    return again


def conclusions(document: dict[str, Any]) -> dict[str, str]:
    """Return the conclusions of an analysis, key by key, as text: each number to ten digits."""
    evidence = document["evidence"]
    found = {
        **document["verdict"],
        **{f"cost {e['stage']} {key}": e[key] for e in _stages(document) for key in e if key != "stage"},
        **{f"{e['name']} {kind}": _rate(e[kind]) for e in document["experiments"] for kind in _KINDS if kind in e},
        **{f"without {e['stage']} {kind}": _rate(e[kind]) for e in document["without"] for kind in _KINDS if kind in e},
        **{key: evidence.get(key) for key in _OF_COSTS},
        "advice": [[each["id"], each["stage"]] for each in document["advice"]],
        "warnings": [each["id"] for each in document["warnings"]],
    }
    return {key: json.dumps(_rounded(value), ensure_ascii=False) for key, value in found.items()}


def _rounded(value: Any) -> Any:
    """Round the numbers within a value to ten digits: BLAS has another kernel for another processor.

    With OPENBLAS_CORETYPE=SkylakeX all kept conclusions are the same to the last digit, with Haswell 15 are not.
    """
    if isinstance(value, float):
        return round(float(f"{value:.10g}"), 12)
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    return [_rounded(each) for each in value] if isinstance(value, (list, tuple)) else value


_KINDS = ("coupled", "drained", "workers", "serving")
_OF_COSTS = ("resolution_s_per_batch", "serving_s_per_batch", "costs_together")
"""Evidence that an analysis adds."""


def _stages(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"stage": each["name"], **each} for each in document["stages"]]


def _rate(rate: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if rate is None else {key: value for key, value in rate.items() if key != "blocks"}
