"""Collation, hand-off and copy of a batch, and ways to send fewer bytes, tensors and objects."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from bottleneck.analysis.advice.case import WORTH, Case, Suggestion, rule
from bottleneck.analysis.advice.workers import usual_handoff_s
from bottleneck.analysis.edits.edits import MANY_TENSORS, PICKLED, SNAPSHOTS
from bottleneck.analysis.settings import number, over_0, positive
from bottleneck.results.evidence import Payload, PickledSeen, Saving
from bottleneck.results.format import duration, names, percent, size, whole
from bottleneck.results.names import BEYOND_THE_WORKER, COLLATE, COMPUTE, COPY, HANDOFF
from bottleneck.results.records import Interval, Stage

_PADDED = 0.3
"""Share of padding in a batch above which bucketing is advised."""


@rule("padding")
def _padding(case: Case) -> Iterator[Suggestion]:
    """Advise shorter rows if much of what the job works on is padding."""
    payload = case.evidence.payload
    padded = next((saving for saving in payload.savings if saving.id == "padding"), Saving())
    saved, path = padded.bytes_saved, padded.path or ""
    whole = next((tensor.bytes for tensor in payload.tensors if tensor.path == path), None)
    if not saved or not whole or whole < 0 or saved < _PADDED * whole:
        return
    share = min(1.0, saved / whole)
    collate = case.holding(COLLATE)
    if collate is None and case.verdict.state != "device_bound":
        return
    where = f"batch{path}"
    on = "Collation builds" if collate is not None else "The train step computes on"
    yield Suggestion(
        stage=COLLATE if collate is not None else COMPUTE,
        title=f"Pad less: {percent(share)} of {where} is padding",
        why=f"{on} all {size(whole)} of it. The gain is an estimate that assumes time in proportion to length.",
        how=padded.how or "sort by length within windows of some batches",
        evidence={"padding_share": share, "bytes": whole, "step_s": case.step_s},
        gain=case.gain_of_part(collate, share)
        if collate is not None
        else case.step_s / max(case.step_s - share * case.device_s, 1e-3 * case.step_s),
    )


@rule("pin-memory", "non-blocking", "prefetch-copy")
def _asynchronous_copy(case: Case) -> Iterator[Suggestion]:
    """Advise pinned memory, and then an asynchronous copy, if the copy to a CUDA device really costs time."""
    copy, pinned = case.stage(COPY), case.pipeline.get("pin_memory")
    if copy is None or copy.finding != "real" or copy.exposed_s_per_batch is None or not case.on_cuda:
        return
    exposed_s = copy.exposed_s_per_batch.estimate
    evidence = {"pin_memory": pinned, "exposed_s_per_batch": exposed_s}
    step = f"{duration(exposed_s)} to each {duration(case.step_s)} step"
    own = case.pipeline.get("to_device")
    nbytes, rate = over_0(case.evidence.payload.bytes), over_0(case.evidence.loader.pinned_bytes_per_s)
    # On the stream of the step the device still waits while the bytes are on their way.
    bus_s, cost = nbytes and rate and nbytes / rate, copy.cost_s_per_batch or copy.exposed_s_per_batch
    gain = case.gain_of(copy) if bus_s is None else case.gain_of_part(copy, 1 - bus_s / max(cost.estimate, bus_s))
    remains = "" if bus_s is None else f" From pinned memory it takes {duration(bus_s)}, which the device waits for."
    is_bus = bus_s is not None and bus_s >= cost.estimate
    if pinned is False and not is_bus:
        yield Suggestion(
            id="pin-memory",
            stage=COPY,
            title="Copy from pinned memory, so that the main process need not wait",
            why=f"The copy to the device adds {step}.{remains}",
            how=("DataLoader(..., pin_memory=True)" if case.has_loader else "tensor.pin_memory() where a batch is made")
            + " and batch.to(device, non_blocking=True)",
            evidence={**evidence, "bus_s": bus_s},
            gain=gain,
        )
    elif pinned is True and own is not None and case.evidence.loader.mentions_non_blocking is False and not is_bus:
        yield Suggestion(
            id="non-blocking",
            stage=COPY,
            title="Copy without waiting in the main process",
            why=f"The batch is pinned, but its copy still adds {step}: {own} does not pass non_blocking, so the "
            f"main process waits for each copy.{remains}",
            how=f"in {own}: tensor.to(device, non_blocking=True)",
            evidence={**evidence, "bus_s": bus_s},
            gain=gain,
        )
    elif pinned is True:
        yield Suggestion(
            id="prefetch-copy",
            stage=COPY,
            title="Copy the next batch on a separate CUDA stream while the device computes",
            why=f"The batch is pinned, but its copy still adds {step}: it is queued behind the step instead of "
            "running at the same time.",
            how="side = torch.cuda.Stream(); with torch.cuda.stream(side): next_batch = move(batch, "
            "non_blocking=True) before the step; torch.cuda.current_stream().wait_stream(side) before its use, and "
            "tensor.record_stream(torch.cuda.current_stream())",
            evidence=evidence,
            frees_stage=True,
        )


# --- smaller batches ----------------------------------------------------------------------------------------


_WORTH_SHARE = 0.1
"""Share of the payload that has to be saved."""
_WORTH_TIME = 0.01
"""Share of a step that it has to take."""
_SLOWEST_BYTES_PER_S = 0.25 * 2**30
"""Slowest transfer of bytes into fresh shared memory or to a device: time above that is not due to size."""

_WORTH_LEAVING_OUT = 0.05
"""Share of the bytes of a batch above which they are worth a change."""
GOES_BY_BYTES = 1e6
"""Bytes of a batch above which moving it takes time in proportion; below, each tensor has a fixed cost."""
_MAX_NAMED = 3


@rule("smaller-payload")
def _smaller_payload(case: Case) -> Iterator[Suggestion]:
    """Advise the largest saving of the payload for a stage that limits the job and moves it."""
    total, saving = case.evidence.payload.bytes, next(iter(case.evidence.payload.savings), None)
    if saving is None or saving.bytes_saved is None or not total or total <= 0:
        return
    share = saving.bytes_saved / total
    moving = [stage for name in BEYOND_THE_WORKER if (stage := case.holding(name)) is not None]
    stage = next((stage for stage in moving if stage.exposed_s_per_batch is not None), None)
    if stage is None or stage.exposed_s_per_batch is None or share < _WORTH_SHARE:
        return
    exposed_s = stage.exposed_s_per_batch.estimate
    # Taken to go with the bytes; the rest of the step stays what it is.
    saved_s = min(share * max(exposed_s, 0.0), saving.bytes_saved / _SLOWEST_BYTES_PER_S)
    if saved_s < _WORTH_TIME * case.step_s:
        return
    where = f"batch{saving.path or ''}"
    yield Suggestion(
        stage=stage.name,
        title=f"Send {where} in fewer bytes",
        why=f"{where} is {saving.what or ''}. Of the {size(total)} of a batch, {percent(share)} "
        f"need not be sent; {stage.name} adds {duration(exposed_s)} to each {duration(case.step_s)} step. "
        f"The estimate assumes that {stage.name} takes time in proportion to bytes.",
        how=saving.how or "send a smaller type",
        evidence={
            "payload_bytes": total,
            "bytes_saved": saving.bytes_saved,
            "exposed_s_per_batch": exposed_s,
            "step_s": case.step_s,
        },
        gain=case.at_most_headroom(case.step_s / max(case.step_s - saved_s, case.device_s)),
    )


@rule("unused-columns")
def _unused_columns(case: Case) -> Iterator[Suggestion]:
    """Advise leaving out tensors that the train step never reads."""
    total = over_0(case.evidence.payload.bytes)
    unread = list(case.evidence.payload.unread or ())
    unread_bytes = over_0(case.evidence.payload.unread_bytes)
    stage = next(iter(case.held_by), None)
    if stage is None or not unread or not unread_bytes or not total or unread_bytes < _WORTH_LEAVING_OUT * total:
        return
    if unread_bytes >= total:  # a step that reads nothing at all replaces another one
        return
    named = ", ".join(f"batch{path}" for path in unread[:_MAX_NAMED])
    rest = f" and {len(unread) - _MAX_NAMED} more" if len(unread) > _MAX_NAMED else ""
    share = min(1.0, unread_bytes / total)
    by_byte = stage.name in BEYOND_THE_WORKER and total >= GOES_BY_BYTES
    estimate = " The gain is an estimate that assumes time in proportion to bytes." if by_byte else ""
    yield Suggestion(
        stage=stage.name if by_byte else None,
        title="Leave out what the train step never reads",
        why=f"The train step read nothing of {named}{rest}: {percent(share)} of the bytes of a batch, which are "
        f"made, collated and moved for nothing.{estimate}",
        how="drop the column before loading: dataset.remove_columns([...]) (Hugging Face), columns=[...] "
        "(Parquet, Arrow, pandas), or do not return it from __getitem__",
        evidence={"unread": unread[:_MAX_NAMED], "unread_bytes": unread_bytes, "payload_bytes": total},
        gain=case.gain_of_part(stage, share) if by_byte else 1.0,
    )


# --- many tensors, and objects ------------------------------------------------------------------------------

_MIN_SAVED_TENSORS = 10
_MIN_SAVED_SHARE = 0.3
"""Share of a batch's tensors that packing has to save."""
_NEAR_THE_LIMIT = 0.5
"""Share of the descriptors that a process may have, above which those in flight are close to it."""
_PACKED = (
    "rows = torch.cat({name})  # in collate_fn, for each field: {name} is the list of its tensors\n"
    "lengths = torch.tensor([len(one) for one in {name}])\n"
    "{name} = rows.split(lengths.tolist())  # in the loop, if it needs them one by one"
)


def is_worth_packing(payload: Payload) -> bool:
    """Return True if one tensor for each field would save many of a batch's tensors."""
    count, packed = over_0(payload.tensor_count), over_0(payload.packed_tensor_count)
    if not count or not packed or not payload.packable:
        return False
    return count - packed >= _MIN_SAVED_TENSORS and 1 - packed / count >= _MIN_SAVED_SHARE


@rule(MANY_TENSORS)
def _many_tensors(case: Case) -> Iterator[Suggestion]:
    """Advise one tensor for each field of a batch if most of the hand-off is that of many small ones."""
    payload, handoff = case.evidence.payload, case.holding(HANDOFF)
    count, packed, total = over_0(payload.tensor_count), over_0(payload.packed_tensor_count), over_0(payload.bytes)
    cost_s = None if handoff is None else _cost_s(handoff)
    if handoff is None or not count or not packed or not total or not cost_s or not is_worth_packing(payload):
        return
    share = 1 - packed / count
    # Taken to go with the tensors, without the time that bytes and objects take.
    other_s = total / _SLOWEST_BYTES_PER_S + sum(_sending_s(case, seen) for seen in payload.pickled)
    small = sum(over_0(place.tensors) or 0.0 for place in payload.packable)
    nbytes = sum(over_0(place.bytes) or 0.0 for place in payload.packable)
    yield Suggestion(
        stage=HANDOFF,
        title=f"Send fewer, larger tensors: {whole(small)} of the {whole(count)} of a batch carry "
        f"{percent(min(1.0, nbytes / total))} of its bytes",
        why=f"Each tensor takes a file in shared memory, whatever its size: handing over {whole(count)} takes "
        f"{duration(cost_s)} a batch, at a step of {duration(case.step_s)}. With one for each field, {whole(packed)} "
        f"remain.{_near_the_limit(case)} The estimate assumes the same time for each tensor.",
        how=_PACKED.format(name=_field(payload.packable[0].path or "")),
        evidence={
            "tensors": count,
            "packed_tensors": packed,
            "small_tensors": small,
            "small_bytes": nbytes,
            "payload_bytes": total,
            "cost_s_per_batch": cost_s,
            "step_s": case.step_s,
            "descriptors_in_flight": payload.descriptors_in_flight,
        },
        gain=_gain_of_share(case, handoff, share * max(0.0, 1 - other_s / cost_s)),
        cause=True,
    )


def _gain_of_share(case: Case, handoff: Stage, share: float) -> float:
    """Return the gain without a share of the hand-off: the rest still delays each step, in the main process."""
    limit = max(1.0, case.gain_of(handoff))
    return 1 / (1 - min(max(share, 0.0), 1.0) * (1 - 1 / limit))


def _cost_s(stage: Stage) -> float | None:
    """Return the time per batch that a stage costs; None unless it is known to cost some."""
    cost = stage.cost_s_per_batch or stage.exposed_s_per_batch
    return None if cost is None else over_0(cost.estimate)


def _near_the_limit(case: Case) -> str:
    """Return a sentence on the descriptors of the batches in flight if these are close to the limit."""
    flying, limit = over_0(case.evidence.payload.descriptors_in_flight), positive(case.environment, "open_files_limit")
    if not flying or not limit or flying < _NEAR_THE_LIMIT * limit:
        return ""
    return f" Batches in flight take up to {whole(flying)} file descriptors, and a process may have {whole(limit)}."


def _field(path: str) -> str:
    """Return a name for the tensors of a place: the last one on the way to it."""
    names = [name for name in re.findall(r"\w+", path) if name.isidentifier()]
    return names[-1] if names else "parts"


_COLLECTS = 1_000
"""Objects that a batch brings, from which on they are the cause of collections of garbage where it arrives."""
_AT_ROOT = re.compile(r"\['\w+'\]")


@rule(PICKLED)
def _pickled_objects(case: Case) -> Iterator[Suggestion]:
    """Advise to leave objects out of a batch, or to send tensors, if pickling takes much of the hand-off."""
    handoff = case.holding(HANDOFF)
    cost_s = None if handoff is None else _cost_s(handoff)
    if handoff is None or not cost_s:
        return
    pickled = case.evidence.payload.pickled
    places = [seen for seen in pickled if _sending_s(case, seen) >= _WORTH_SHARE * cost_s][:_MAX_NAMED]
    sending_s = sum(_sending_s(case, seen) for seen in places)
    objects = sum(over_0(seen.python_objects) or 0.0 for seen in places)
    collecting_s = case.collecting_share * case.step_s if objects >= _COLLECTS else 0.0
    part = min(sending_s + collecting_s, cost_s - usual_handoff_s(case)) / cost_s
    promised = _gain_of_share(case, handoff, part)
    if not places or promised < WORTH:
        return
    collecting = f", and collecting garbage among them {duration(collecting_s)}" if collecting_s else ""
    yield replace(
        _instead_of(places),
        why=f"A batch holds {_listed(places)}: {whole(objects)} Python objects. To pickle and unpickle them takes "
        f"{duration(sending_s)}{collecting}, of the {duration(cost_s)} of handing over a batch, at a step of "
        f"{duration(case.step_s)}.",
        evidence={
            "places": [seen.path for seen in places],
            "python_objects": objects,
            "pickled_bytes": sum(over_0(seen.pickled_bytes) or 0.0 for seen in places),
            "sending_s": sending_s,
            "collecting_s": collecting_s,
            "cost_s_per_batch": cost_s,
            "step_s": case.step_s,
        },
        gain=Interval(promised, 1.0, max(promised, case.gain_of(handoff))),
    )


def _instead_of(places: Sequence[PickledSeen]) -> Suggestion:
    """Return what to do about the objects of some places, without its reason."""
    paths = [seen.path or "" for seen in places]
    where = names([f"batch{path}" for path in paths])
    if not all(seen.unread for seen in places):
        title = f"Send tensors instead of the objects in {where}"
        how = "in __getitem__ or collate_fn, make tensors of what the step reads of them, and leave out the rest"
    else:
        title = f"Leave {where} out of the batch: the train step uses none of it"
        how = "leave it out in __getitem__, or at the end of collate_fn"
        if all(_AT_ROOT.fullmatch(path) for path in paths):
            how = "\n".join(f"batch.pop({path[1:-1]})  # at the end of collate_fn, or before" for path in paths)
    return Suggestion(stage=HANDOFF, title=title, why="", how=how, evidence={}, cause=True)


def _listed(places: Sequence[PickledSeen]) -> str:
    listed = [f"{whole(seen.objects)} of type {seen.type} in batch{seen.path or ''}" for seen in places]
    return names([listed[0].replace("of type", "objects of type", 1), *listed[1:]])


def _sending_s(case: Case, seen: PickledSeen) -> float:
    """Return the time that the objects of a place take of each batch: workers pickle side by side."""
    return (over_0(seen.pickle_s) or 0.0) / max(1.0, case.workers) + (over_0(seen.unpickle_s) or 0.0)


# --- snapshots ----------------------------------------------------------------------------------------------

_FEW_PER_WORKER = 50
"""Batches of a worker for one snapshot, from which on snapshots are rare."""


def rare_interval(workers: int) -> int:
    """Return an interval between snapshots, a power of ten, of at least fifty batches for each worker."""
    return int(10 ** math.ceil(math.log10(_FEW_PER_WORKER * max(1, workers))))


def _with_snapshot(case: Case, interval: float) -> float:
    """Return the share of batches with a snapshot: the last of an interval, one of each worker.

    For a stream the loader counts from the batches that it has given, and asks with all that are in flight, too.
    """
    workers = max(1, int(case.workers))
    in_flight = workers * int(number(case.pipeline, "prefetch_factor") or 2) + 1
    return min(1.0, (workers + (in_flight if case.evidence.loader.iterable else 0)) / interval)


@rule(SNAPSHOTS)
def _snapshots(case: Case) -> Iterator[Suggestion]:
    """Advise fewer snapshots of a loader that can resume if they take much of the hand-off."""
    seen, handoff, workers = case.evidence.snapshots, case.holding(HANDOFF), max(1, int(case.workers))
    cost_s, rare = None if handoff is None else _cost_s(handoff), rare_interval(workers)
    if handoff is None or not cost_s or not case.workers or not seen.interval or not 0 < seen.interval < rare:
        return
    in_worker_s, unpickle_s = (over_0(seen.state_s) or 0.0) + (over_0(seen.pickle_s) or 0.0), over_0(seen.unpickle_s)
    saved = _with_snapshot(case, seen.interval) - _with_snapshot(case, rare)
    taking_s = saved * (in_worker_s / workers + (unpickle_s or 0.0))  # workers take them side by side
    promised = _gain_of_share(case, handoff, min(taking_s, cost_s - usual_handoff_s(case)) / cost_s)
    if promised < WORTH:
        return
    often = "batch" if seen.interval == 1 else f"{whole(seen.interval)} batches"
    yield Suggestion(
        stage=HANDOFF,
        title=f"Take snapshots of the loader less often: with every {often}, workers send their dataset's state",
        why=f"A snapshot takes {duration(in_worker_s)} in a worker, which calls `state_dict` and pickles "
        f"{size(seen.pickled_bytes or 0.0)}, and {duration(unpickle_s or 0.0)} in the main process; handing over a "
        f"batch takes {duration(cost_s)}, at a step of {duration(case.step_s)}. With fewer snapshots a run still "
        "resumes at the same batch; it only reloads the batches since the last snapshot.",
        how=f"StatefulDataLoader(..., snapshot_every_n_steps={rare})",
        evidence={
            "proposed": {"snapshot_every_n_steps": rare},
            "interval": seen.interval,
            "state_s": seen.state_s,
            "pickle_s": seen.pickle_s,
            "unpickle_s": seen.unpickle_s,
            "pickled_bytes": seen.pickled_bytes,
            "cost_s_per_batch": cost_s,
            "step_s": case.step_s,
        },
        gain=Interval(promised, 1.0, max(promised, case.gain_of(handoff))),
        cause=True,
    )


RULES = (_padding, _asynchronous_copy, _smaller_payload, _unused_columns, _many_tensors, _pickled_objects, _snapshots)
