"""Which job a report is about: the name of its target, and what tells two runs of it apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeGuard

from bottleneck.analysis import settings
from bottleneck.results.format import known, number, plural, whole
from bottleneck.results.names import RAW, SYNC, is_cpu
from bottleneck.results.records import Result, State
from bottleneck.results.tuning import TuningResult

_THIS_JOB = "this job"

Measured = Result | TuningResult
"""What says which job and which machine it is about."""


def job_name(result: Measured) -> str:
    """The target as it was typed; else the model and its data, which is all that a call from Python tells."""
    target, model, dataset = (_text(result.pipeline, key) for key in ("target", "model", "dataset"))
    if target:
        return target
    return " on ".join(filter(None, (model, dataset.rpartition(".")[2]))) or _THIS_JOB


def job_facts(result: Measured) -> tuple[str, ...]:
    """Commit, device, batch and workers, as far as they are known."""
    return tuple(_facts(result))


def _facts(result: Measured) -> Iterator[str]:
    commit = _text(result.pipeline, "commit")
    if commit:
        yield f"commit {commit}"
    device = _text(result.environment, "device_name") or _text(result.environment, "device")
    if ranks := ranks_in_words(result):
        yield ranks
    if device:
        yield f"{device} (CPU)" if on_cpu(result) and device != "cpu" else device.replace("cpu", "CPU")
    batch, workers = result.pipeline.get("batch_size"), result.pipeline.get("num_workers")
    if _is_number(batch):
        yield f"batch {number(batch)}"
    if _is_number(workers):
        yield f"{number(workers)} worker{'' if workers == 1 else 's'}"


def ranks_in_words(result: Measured) -> str:
    """How many there are; empty of a job of one process."""
    together = result.evidence.ranks if isinstance(result, Result) else None
    if together is None or (together.world or 0) < 2:
        return ""
    hosts = f" on {plural(together.hosts, 'host')}" if together.hosts else ""
    return f"{whole(together.world)} ranks{hosts}"


def a_rank(result: Result) -> str:
    """What stands behind a throughput, which is that of each rank."""
    return " a rank" if ranks_in_words(result) else ""


def standing(result: Result) -> Literal[State, "sync_bound"]:
    """The state, but for a job that neither its input nor its device holds, but the sharing of gradients."""
    verdict = result.verdict
    return "sync_bound" if verdict.state == "device_bound" and verdict.bottleneck == SYNC else verdict.state


def rate_unit(result: Measured) -> str:
    """What the throughput of the job counts: `samples/s`, or `batches/s` where their size is not known."""
    if isinstance(result, Result):
        now = next((e.coupled for e in result.experiments if e.name == RAW and e.coupled), None)
    else:
        now = next((rung.rate for rung in result.ladder), None)
    return settings.rate_unit(result.pipeline, now.blocks if now is not None else ())


def on_cpu(result: Measured) -> bool:
    """Whether the train step is known to run on the same cores as the workers."""
    return is_cpu(result.environment.get("device"))


def _text(part: Mapping[str, Any], key: str) -> str:
    value = part.get(key)
    return value if isinstance(value, str) else ""


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and known(value)
