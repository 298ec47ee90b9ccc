"""The edit that a piece of advice asks for, what it promises, and the command that proves it.

An edit is a diff, or lines that can be pasted. Where it was seen in the user's source it is theirs, with file and line;
else it is written with dots. Prose is no edit.
"""

from __future__ import annotations

import ast
import shlex
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bottleneck.analysis.edits.patch import Parts, changed, loader_call, parts_of, shown
from bottleneck.results.evidence import Evidence
from bottleneck.results.names import LOADING
from bottleneck.results.records import Advice, Result

FIRST = "measure-longer"
"""The id that goes before all others: nothing is known yet."""
AMPLIFIED, CACHE, CONSTRUCTION, DISTINCT = "amplification", "cache-dataset", "made-again", "keep-distinct"
"""Ids of advice on unnecessary work of a stage."""
LINE = "costliest-line"
"""The id of advice on a line, which goes before general advice on its stage."""
GARBAGE, IDLE, SAMPLER, THREADS = "garbage-collection", "idle-workers", "slow-sampler", "thread-oversubscription"
STEP_THREADS = "step-threads"
"""The id of advice on a train step with more threads than cores."""
MANY_TENSORS, PICKLED, SNAPSHOTS = "many-tensors", "pickled-objects", "frequent-snapshots"
"""Ids of advice on a batch that is costly to hand over."""
MORE_WORKERS, NO_WORKERS, USE_WORKERS = "more-workers", "no-workers-better", "use-workers"
TRIED = frozenset((MORE_WORKERS, THREADS, USE_WORKERS))
"""Ids of advice whose gain is that of the edit itself if measured, not a bound."""
CAUSES = frozenset((CONSTRUCTION, GARBAGE, IDLE, SAMPLER, THREADS))
"""The ids of advice on work that need not be done at all: with a gain, it goes before places in the code."""
_MAX_CODE = 2_000


@dataclass(frozen=True)
class Edit:
    """An edit of the user's code."""

    lines: str
    is_diff: bool
    place: str = ""
    """File and line, if known."""
    parts: Parts = ()
    """Parts of the user's source, if known."""


def place_of(advice: Advice, evidence: Evidence) -> str:
    """Return file and line of the user's code that a piece of advice is about; empty if unknown."""
    path, line = advice.evidence.get("path"), advice.evidence.get("line")
    if line is not None:
        return f"{path}:{line}"
    wanted = path or ("__getitem__" if advice.stage in LOADING else None)
    seen = next((place for place in evidence.source if place.name == wanted), None)
    return "" if seen is None else f"{seen.file}:{seen.line + seen.text.count(chr(10), 0, seen.begin)}"


def is_fact(advice: Advice) -> bool:
    """Return True if it only states a fact; the cores of other processes can be freed."""
    if advice.id == "workers-would-not-help":  # of files of earlier versions
        return True
    return advice.id == "workers-cannot-help" and "cores_other" not in advice.evidence


def edit_of(advice: Advice, pipeline: Mapping[str, Any], evidence: Evidence) -> Edit | None:
    """Return the edit of a piece of advice; None if unknown, or if there is nothing to do."""
    if is_fact(advice):
        return None
    proposed = advice.evidence.get("proposed")
    if isinstance(proposed, Mapping):
        order = proposed.get("order")
        if isinstance(order, Sequence) and not isinstance(order, str):
            return _reordered([str(path) for path in order], evidence)
        return _settings(proposed, pipeline, evidence)
    return Edit(advice.how, is_diff=False) if is_code(advice.how) else None


def is_code(text: str) -> bool:
    """Return True if a text is Python that does something."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about escapes in text that is not code
            parsed = ast.parse(text[:_MAX_CODE])
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    calls = (ast.Call, ast.Assign, ast.Import)
    return bool(parsed.body) and any(isinstance(node, calls) for node in ast.walk(parsed))


# --- changes ----------------------------------------------------------------------------------------------


def _settings(settings: Mapping[str, Any], pipeline: Mapping[str, Any], evidence: Evidence) -> Edit | None:
    parts = parts_of(settings, evidence.source)
    if parts or not settings:
        return _diff(parts)
    before = {name: pipeline[name] for name in settings if name in pipeline}
    lines = (f"{sign}{loader_call(given, settings)}" for sign, given in (("-", before), ("+", settings)))
    return Edit("\n".join(lines), is_diff=True)


def _reordered(order: Sequence[str], evidence: Evidence) -> Edit | None:
    """Return the transforms of a composition in a new order, by path: each one's text in its new place."""
    names = {seen.path: seen.name for seen in evidence.transforms if seen.path in order}
    now = [seen.path for seen in evidence.transforms if seen.path in order]
    if len(now) != len(order) or set(now) != set(order) or not all(names.values()):
        return None
    places = {place.name: place for place in evidence.source}
    if all(path in places for path in now):
        wanted = (places[path] for path in order)
        texts = [place.text[place.begin : place.end] for place in wanted]
        return _diff([(places[str(path)], text) for path, text in zip(now, texts, strict=True)])
    before, after = ([f"{names[path]}(...)," for path in paths] for paths in (now, order))
    return Edit("\n".join(changed(before, after)), is_diff=True)


def _diff(parts: Parts) -> Edit | None:
    lines = shown(parts)
    return Edit("\n".join(lines), True, f"{parts[0][0].file}:{parts[0][0].line}", parts) if lines else None


# --- what it promises ---------------------------------------------------------------------------------------


def claims_at_most(advice: Advice) -> bool:
    """Return True if a gain is given as an upper bound: that of a stage if free, or an estimate from 1 upwards."""
    gain = advice.gain
    if gain is None:
        return False
    is_of_free_stage = advice.gain_basis == "measured" and advice.id not in TRIED
    return is_of_free_stage or (gain.low == 1.0 and gain.high == gain.estimate)


# --- what proves it -----------------------------------------------------------------------------------------


PROVING: dict[str, tuple[str, ...]] = {
    "augment-on-device": ("augment_on_device",),
    "cache-dataset": ("in_memory",),
    "crop-before": ("crop_first",),
    "faster-step": ("batch_size", "compile"),
    "fetch-in-batches": ("whole_batches",),
    SNAPSHOTS: ("snapshot_every_n_steps",),
    "garbage-collection": ("gc_freeze",),
    "image-decoding": ("decode_small",),
    MANY_TENSORS: ("packed_tensors",),
    "mixed-precision": ("autocast", "fp16"),
    "more-workers": ("num_workers", "threads"),
    NO_WORKERS: ("num_workers",),
    "non-blocking": ("pin_memory",),
    "persistent-workers": ("persistent_workers", "start_method"),
    PICKLED: ("leave_out",),
    "pin-memory": ("pin_memory",),
    "smaller-payload": ("one_hot", "smaller_floats", "uint8_images"),
    "spawn-pickling": ("start_method",),
    STEP_THREADS: ("threads",),
    "storage-latency": ("fetch_in_threads",),
    "thread-oversubscription": ("worker_threads",),
    "too-many-workers": ("num_workers",),
    "uint8-until-device": ("uint8_images",),
    "uneven-samples": ("num_workers", "in_order"),
    "unused-columns": ("leave_out",),
    "use-workers": ("num_workers", "threads"),
    "wait-less": ("fetch_in_threads",),
    "worker-affinity": ("worker_affinity",),
}
"""Changes of a tuning that try the advice, by the id of the advice."""
NOT_IN_SCRIPTS = frozenset(
    (
        "augment_on_device",
        "autocast",
        "batch_size",
        "compile",
        "fp16",
        "leave_out",
        "one_hot",
        "smaller_floats",
        "uint8_images",
    )
)
"""Advice that would change a script's loop, which a tuning does not do."""
_LOOP = "it does not change the script's loop; a job that is defined by a function can be tried"
_RANKS = "it does not change what ranks share"
_BESIDES = "it does not change what a loop does besides its steps"
UNPROVEN = {
    LINE: "only you know what may replace the line",
    **dict.fromkeys(
        (
            "after-step",
            "between-epochs",
            "loop-line",
            "one-iterator",
            "switch-left-on",
            "validation",
            "workers-in-step",
        ),
        _BESIDES,
    ),
    "fewer-handoffs": "it does not change what the loop gets from the loader",
    "longer-epochs": "it does not change the epochs",
    "rank-contention": _RANKS,
    "share-less": _RANKS,
    "slow-sampler": "your sampler decides how indices are drawn",
    "uneven-shards": _RANKS,
}
"""Reasons why advice has no change that tries it, by the id of the advice."""


def proof_of(result: Result, advice: Iterable[Advice]) -> str:
    """Return the command that tries the advice; empty if there is none, as for a job of several ranks.

    The arguments of a script, if it may have any, are replaced by ARGS, because reports are shown to others.
    """
    items = tuple(advice)
    tried = dict.fromkeys(name for item in items for name in changes_for(result, item))
    job = _job(result)
    if not tried or not job or result.ranks:
        return ""
    options = [f"--try {name}" for name in tried]
    if not _is_script(result):
        return " ".join(["bottleneck tune", *job, *options])
    ran_without = any(item.prove and item.prove[-1] == result.pipeline["target"] for item in items)
    return " ".join(["bottleneck tune", *options, *job, *([] if ran_without else ["ARGS"])])


def _is_script(result: Result) -> bool:
    return result.pipeline.get("source") == "script"


def _job(result: Result) -> list[str]:
    """Return the job as `tune` takes it; empty if it does not, as a script without .py at its end."""
    target = result.pipeline.get("target")
    if not isinstance(target, str):
        return []
    if not _is_script(result) or target.endswith(".py"):
        return [shlex.quote(target)]
    return ["-m", target] if all(part.isidentifier() for part in target.split(".")) else []


def changes_for(result: Result, advice: Advice) -> Iterator[str]:
    """Yield the changes that try the advice and that apply to the job."""
    # The workers of a stream divide it in a way of their own; Pillow may not decode; a line may call gc.collect().
    other = {"num_workers", "fetch_in_threads"} if result.evidence.loader.iterable else set()
    other |= {"gc_freeze"} if "line" in advice.evidence else set() if "Pillow" in advice.how else {"decode_small"}
    other |= NOT_IN_SCRIPTS if _is_script(result) else set()
    other |= set() if "torch_threads" in advice.evidence else {"threads"}
    other |= set() if advice.id != PICKLED or _are_unread(result.evidence, advice) else {"leave_out"}
    yield from (name for name in PROVING.get(advice.id, ()) if name not in other)


def _are_unread(evidence: Evidence, advice: Advice) -> bool:
    """Return True if the step uses none of the objects that a piece of advice is about."""
    unread = {seen.path for seen in evidence.payload.pickled if seen.unread}
    return unread.issuperset(advice.evidence.get("places", ()))


def why_unproven(result: Result, advice: Advice) -> str:
    """Return the reason why no change tries an edit, as a sentence; empty if one does, or without an edit."""
    if any(changes_for(result, advice)) or edit_of(advice, result.pipeline, result.evidence) is None:
        return ""
    why = UNPROVEN.get(advice.id)
    if advice.id in PROVING:
        of_stream = result.evidence.loader.iterable and "num_workers" in PROVING[advice.id]
        why = "the workers of a stream divide it in their own way" if of_stream else _LOOP
    return f"`bottleneck tune` does not try this: {why}." if why else ""
