"""Advice for input-bound jobs without more specific advice: all of it can be done as written."""

from __future__ import annotations

from collections.abc import Iterator

from bottleneck.analysis.advice.case import Case, Suggestion, rule
from bottleneck.analysis.advice.transfer import GOES_BY_BYTES
from bottleneck.analysis.epochs import Epoch
from bottleneck.analysis.settings import over_0
from bottleneck.results.format import duration, number, percent, size
from bottleneck.results.names import BEYOND_THE_WORKER, COPY, HANDOFF
from bottleneck.results.records import Stage

_AT_ONCE = 4
"""Batches that are handed over together."""
_TINY_S = 1e-3
"""Seconds per batch of the loader below which much of the time is not work on samples."""
_PASSES = 10
"""Passes over the data that are to be one epoch."""
_FLOATS = ("float32", "float64")


@rule("fewer-handoffs", "fewer-bytes", "longer-epochs", "look-for-lines")
def _last_resort(case: Case) -> Iterator[Suggestion]:
    """Advise what any job can do: for its slowest stage, for its epochs, or for its kind of loader."""
    if not case.input_bound:
        if case.is_slow_over_epochs and case.epoch is not None:
            yield _longer_epochs(case, case.epoch)
        return
    moving = next((stage for name in BEYOND_THE_WORKER if (stage := case.holding(name)) is not None), None)
    if moving is not None and (over_0(case.evidence.payload.bytes) or 0.0) >= GOES_BY_BYTES:
        yield _fewer_bytes(case, moving)
    elif moving is not None and moving.name == HANDOFF and case.has_loader:
        yield _fewer_handoffs(case, moving)
    elif case.is_unresolved and case.has_loader and case.workers and case.loader_s <= _TINY_S:
        yield _fewer_handoffs(case, None)
    else:
        own, copies = case.pipeline.get("to_device"), moving is not None and moving.name == COPY
        yield Suggestion(
            id="look-for-lines",
            stage=COPY if copies else None,
            title=f"Find out what {own or 'the copy to the device'} does"
            if copies
            else "Find the lines that make batches slow",
            why=f"The loader takes {duration(case.loader_s)} per batch. A step takes {duration(case.step_s)}, and "
            f"{duration(case.device_s)} with its input ready.",
            how="--trace DIR records its operations"
            if copies
            else "--flamegraph DIR draws the functions of the workers",
            evidence={"loader_s_per_batch": case.loader_s, "device_s_per_batch": case.device_s},
            last_resort=True,
        )


def _longer_epochs(case: Case, epoch: Epoch) -> Suggestion:
    gap_s, how = epoch.gap_s.estimate, "let the source of the batches continue from one pass over the data to the next"
    if case.has_loader and not case.evidence.loader.iterable:
        how = f"DataLoader(..., sampler=RandomSampler(dataset, num_samples={_PASSES} * len(dataset)))"
    return Suggestion(
        id="longer-epochs",
        title=f"Make one epoch of {_PASSES} passes over the data",
        why=f"Each epoch of {duration(epoch.seconds)} starts with {duration(gap_s)} without training.",
        how=how,
        evidence={"gap_s": gap_s, "epoch_s": epoch.seconds},
        gain=epoch.seconds / (epoch.seconds - (1 - 1 / _PASSES) * gap_s),
        last_resort=True,
    )


def _fewer_handoffs(case: Case, handoff: Stage | None) -> Suggestion:
    batch_size = case.positive("batch_size") or 1
    cost = None if handoff is None else handoff.cost_s_per_batch or handoff.exposed_s_per_batch
    takes = f"{duration(cost.estimate)} of each" if cost is not None and cost.estimate > 0 else "much of each"
    part = 1 - 1 / _AT_ONCE
    return Suggestion(
        id="fewer-handoffs",
        stage=None if handoff is None else handoff.name,
        title=f"Take {_AT_ONCE} batches at once from the workers, and split them in the loop",
        why=f"Handing over a batch of {size(case.evidence.payload.bytes)} needs as many calls as a large one: that "
        f"takes {takes} {duration(case.step_s)} step. Taking {_AT_ONCE} at once saves {percent(part)} of it.",
        how=f"loader = DataLoader(..., batch_size={number(_AT_ONCE * batch_size)})  # {_AT_ONCE} current "
        f"batches\nfor large in loader:\n    for batch in zip(*(part.split({number(batch_size)}) for part in large)):"
        "\n        ...  # the step",
        evidence={
            "cost_s_per_batch": None if cost is None else cost.estimate,
            "payload_bytes": case.evidence.payload.bytes,
            "step_s": case.step_s,
        },
        gain=1.0 if handoff is None else case.gain_of_part(handoff, part),
        last_resort=True,
    )


def _fewer_bytes(case: Case, moving: Stage) -> Suggestion:
    payload, total = case.evidence.payload, over_0(case.evidence.payload.bytes) or 1.0
    floats = sum(over_0(tensor.bytes) or 0.0 for tensor in payload.tensors if tensor.dtype in _FLOATS)
    halved = min(1.0, floats / total) / 2
    told = f" Floats are {percent(2 * halved)} of that; the gain assumes half of them." if halved else ""
    return Suggestion(
        id="fewer-bytes",
        stage=moving.name,
        title=f"Send less: {moving.name} is slow at {size(total)} a batch",
        why=f"{moving.name} limits the job, at a step of {duration(case.step_s)}.{told}",
        how="do in the step the work that enlarges a batch (one-hot rows, floats from bytes, padding)"
        + ("; or send 16 bits: tensor.half() in the collate function, and .float() in the step" if halved else ""),
        evidence={"payload_bytes": total, "float_bytes": floats, "step_s": case.step_s},
        gain=case.gain_of_part(moving, halved),
        last_resort=True,
    )


RULES = (_last_resort,)
