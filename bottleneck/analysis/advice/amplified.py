"""The cause within a stage that makes samples: more is touched than is kept, or the same is made again each time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from bottleneck.analysis.advice.case import MOSTLY, Case, Suggestion, mostly_waits, rule
from bottleneck.analysis.advice.edits import AMPLIFIED, CACHE
from bottleneck.analysis.advice.samples import PIXELS_TOO_MANY, TINY_S, cost_in_words, cost_s, dataset_of
from bottleneck.analysis.advice.stages import has_own_remedy, top_line
from bottleneck.analysis.settings import over_0
from bottleneck.results.evidence import AmplifiedSeen
from bottleneck.results.format import duration, names, number, percent, plural, significant, size
from bottleneck.results.names import LOAD, stages_in
from bottleneck.results.records import Stage

_FACTOR = 4.0
"""Touched over kept from which on it is too much."""
_WORTH_NAMING = 0.3
"""Share of a stage from which on what a library does is worth a change."""
_EACH_TIME, _SAME_FILES = 0.75, 0.75
"""Opens for a sample, and different files over opens, from where on and up to where handles are worth keeping."""


class _Remedy(NamedTuple):
    title: str
    does: str
    """What is done with what is touched."""
    how: str


_READ = "read"
"""The source that is all that a worker reads."""
_KEEP_HANDLE = (
    "open each file once in each worker, at its first sample, and keep it: functools.lru_cache on the opening"
)
_REMEDIES = {
    "parquet": _Remedy(
        "Use a row group for all of its rows, not for one",
        "decodes",
        "keep the row group that was read last, and draw the rows of one group after each other (groups in random "
        "order, then rows within them); or write small groups once: pq.write_table(table, path, row_group_size=1)",
    ),
    "hdf5": _Remedy(
        "Store the data in chunks of a sample's shape",
        "unpacks chunks of",
        "write the file once more: create_dataset(name, data=data, chunks=(1, *data.shape[1:])), or chunks of what a "
        "sample takes",
    ),
    "zarr": _Remedy(
        "Store the data in chunks of a sample's shape",
        "unpacks chunks of",
        "write the array once more, with chunks=(1, *data.shape[1:]), or chunks of what a sample takes",
    ),
    "nifti": _Remedy(
        "Store the volumes uncompressed, and read a part",
        "unpacks",
        "store each volume once by np.save(path, volume), in the type that the sample has; in __getitem__ "
        'np.load(path, mmap_mode="r") and a slice of it',
    ),
    "video": _Remedy(
        "Decode only the frames that are used",
        "decodes",
        "seek to the first one (capture.set(cv2.CAP_PROP_POS_FRAMES, first); container.seek), which decodes from the "
        "key frame before it; write videos with more key frames (ffmpeg -g 15), or store the frames once",
    ),
    "saved-tensors": _Remedy(
        "Save clones: the files hold whole storages",
        "loads",
        "torch.save(tensor.clone(), path) where the files are written, and write them once more: a view is saved with "
        "all of the storage that it is a view of",
    ),
    "archive": _Remedy("Keep the archive open", "unpacks", "store the members that a sample needs by themselves"),
    "compressed": _Remedy(
        "Store the data uncompressed, and read a part",
        "unpacks",
        'unpack the files once: np.save(path, array); in __getitem__ np.load(path, mmap_mode="r") and the part of it '
        "that the sample keeps",
    ),
    "array-file": _Remedy(
        "Read only the part of the file that is kept",
        "reads",
        'np.load(path, mmap_mode="r"), and a slice of that; or store what a sample keeps in a file of its own',
    ),
    _READ: _Remedy(
        "Read only the part of the files that is kept",
        "reads",
        "store what a sample keeps by itself, or in an array that is read in parts "
        '(np.save, and np.load with mmap_mode="r")',
    ),
}
_READS = re.compile(r"\b_?(load|read|open|parse|fetch)\w*(\(|$)|^(json|pickle|yaml)\.")
"""A line that takes its time because of what it reads."""


@rule(AMPLIFIED)
def _amplification(case: Case) -> Iterator[Suggestion]:
    """Name what is read, unpacked or decoded for each sample and not kept."""
    for stage in case.suspects:
        rows = [s for s in case.evidence.amplification if s.stage == stage.name and s.source in _REMEDIES]
        found = [(seen, part) for seen in rows if (part := _part_too_much(case, stage, seen)) >= _WORTH_NAMING]
        if not found:
            continue
        seen, part = found[0]
        remedy, opens = _REMEDIES[str(seen.source)], _is_opened_each_time(seen)
        factor = _factor(seen)
        top = top_line(case, stage)
        yield Suggestion(
            stage=stage.name,
            title=remedy.title if factor >= _FACTOR else "Keep the files open from sample to sample",
            why=f"{_in_numbers(seen, remedy)}{_opened(seen) if opens else ''}{_takes(stage, seen, part)}",
            how=". ".join([_KEEP_HANDLE] * opens + [remedy.how] * (factor >= _FACTOR)),
            evidence={
                "source": seen.source,
                "touched_per_sample": seen.touched_per_sample,
                "kept_per_sample": seen.kept_per_sample,
                "factor": factor,
                "share": seen.share,
                "opens": seen.opens,
                "gain": case.gain_of(stage),
                **({"path": top.path, "line": top.line} if top is not None else {}),
            },
            gain=case.gain_of_part(stage, part),
            cause=True,
        )


def _factor(seen: AmplifiedSeen) -> float:
    """Touched over kept; 0 where one of them is not known, or nothing."""
    touched, kept = over_0(seen.touched_per_sample), over_0(seen.kept_per_sample)
    return touched / kept if touched and kept else 0.0


def _part_too_much(case: Case, stage: Stage, seen: AmplifiedSeen) -> float:
    """The part of a stage's time that goes into what is not kept, and into opening the same files."""
    factor = _factor(seen)
    if seen.source == _READ:
        return 0.0 if factor < _FACTOR else (1 - 1 / factor) * _share_of_reading(case, stage)
    share = over_0(seen.share) or 0.0
    opening = min(share, over_0(seen.opening_share) or 0.0)
    part = (share - opening) * (1 - 1 / factor) if factor >= _FACTOR else 0.0
    return part + (opening if _is_opened_each_time(seen) or part else 0.0)


def _share_of_reading(case: Case, stage: Stage) -> float:
    """The part of a stage that its reading takes; 0 where it computes, or a library or images say more about it."""
    facts, others = case.evidence.loader, (s for s in case.evidence.amplification if s.stage == stage.name)
    if any((over_0(seen.share) or 0.0) >= _WORTH_NAMING for seen in others if seen.source != _READ):
        return 0.0
    decoded, used = over_0(facts.decoded_pixels_per_sample), over_0(facts.used_pixels_per_sample)
    if decoded and used and decoded >= PIXELS_TOO_MANY * used:
        return 0.0
    if mostly_waits(case, stage):
        return MOSTLY
    top = top_line(case, stage)
    reads = top is not None and _READS.search(top.calls or top.code or "")
    return over_0(top.share) or 0.0 if top is not None and reads else 0.0


def _is_opened_each_time(seen: AmplifiedSeen) -> bool:
    """Whether the same files are opened for most samples."""
    samples, opens, files = over_0(seen.samples), over_0(seen.opens), over_0(seen.opened_files)
    return bool(samples and opens and files and opens >= _EACH_TIME * samples and files <= _SAME_FILES * opens)


def _in_numbers(seen: AmplifiedSeen, remedy: _Remedy) -> str:
    touched, kept, factor = seen.touched_per_sample, seen.kept_per_sample, _factor(seen)
    if not factor or touched is None or kept is None:
        return ""
    if seen.unit == "frames":
        much, less = f"{number(touched)} frames", number(kept)
    else:
        rows = f" ({number(seen.rows_per_sample)} rows)" if seen.rows_per_sample else ""
        much, less = f"{size(touched)}{rows}", size(kept)
    times = f": {significant(factor, 2)} times as much" if factor >= _FACTOR else ""
    return f"A sample {remedy.does} {much} and keeps {less}{times}. "


def _opened(seen: AmplifiedSeen) -> str:
    files = plural(seen.opened_files or 0, "file")
    return f"{plural(seen.samples or 0, 'sample')} opened {files} {plural(seen.opens or 0, 'time')}. "


def _takes(stage: Stage, seen: AmplifiedSeen, part: float) -> str:
    share = over_0(seen.share)
    took = f"That takes {percent(share)} of {stage.name}. " if share is not None else ""
    return f"{took}The gain is what {percent(part)} of {stage.name} would bring if free."


# --- the same again -----------------------------------------------------------------------------------------

_MEMORY_SHARE = 0.5
"""Share of the free memory that a cache of the dataset may take."""
_WORTH_SAYING = 0.1
"""Cost of a further stage over that of the first, from which on it is part of what is named."""
_MOST_STORED = 1e12
"""Bytes beyond which to store it is a project of its own."""
_SLOW_DISK_BYTES_PER_S = 2e8
_QUICKER = 0.5
"""Time of reading what is stored over that of making it, up to which it is worth the disk."""


class _Same(NamedTuple):
    """What an index gives each time."""

    stages: list[Stage]
    """Those that the job would be free of; the first of them holds it."""
    bytes_per_sample: float
    seconds_per_sample: float | None
    """Of a worker's time; None where it was not seen that it comes out the same."""


@rule(CACHE)
def _cache_dataset(case: Case) -> Iterator[Suggestion]:
    """Advise making only once what an index gives in the same way each time."""
    same, length, free = _same_again(case), case.positive("dataset_length"), case.free_memory_bytes
    if same is None or not length or not free:
        return
    total, fits = same.bytes_per_sample * length, same.bytes_per_sample * length <= _MEMORY_SHARE * free
    if not fits and not _is_worth_a_disk(case, same, total):
        return
    stage, listed = same.stages[0], names([one.name for one in same.stages])
    only_loads = listed == LOAD
    if fits:
        room = f"about {size(total)} of the {size(free)} that are free"
        how = (
            f"in {dataset_of(case)}.__init__: load every sample once into one array or tensor (np.stack, torch.stack), "
            "before the workers start, so that they share it; __getitem__ then only takes from it"
        )
    else:
        room = f"about {size(total)}, more than half of the {size(free)} of memory that are free: they fit on a disk"
        how = 'np.lib.format.open_memmap(path, mode="w+", dtype=..., shape=(len(dataset), ...)), filled once'
        how += f'; in {dataset_of(case)}.__getitem__ np.load(path, mmap_mode="r")[index]'
    what = "loaded samples" if only_loads else f"results of {listed}"
    where = "in memory" if fits else "on disk"
    title = (
        f"Load the dataset once, and keep it {where}"
        if only_loads
        else f"Do {listed} once, and keep the results {where}"
    )
    yield Suggestion(
        stage=stage.name,
        title=title,
        why=f"{_seen_twice(case, same, listed)}All {number(length)} {what} take {room}; {cost_in_words(case, stage)}",
        how=how,
        evidence={
            "loaded_bytes_per_sample": same.bytes_per_sample,
            "dataset_length": length,
            "memory_available_bytes": free,
            "cost_s_per_batch": cost_s(stage),
            "made_twice": case.evidence.repeated.samples,
        },
        frees_stage=len(same.stages) == 1,
        gain=_gain_of_all(case, same.stages),
        cause=same.seconds_per_sample is not None and not has_own_remedy(case, stage),
    )


def _same_again(case: Case) -> _Same | None:
    """The stages that give the same each time, if one of them holds the job."""
    seen, facts = case.evidence.repeated, case.evidence.loader
    loaded, holding = over_0(facts.loaded_bytes_per_sample), case.holding(LOAD)
    if seen.samples is None:  # in files of earlier versions
        return _Same([holding], loaded, None) if holding is not None and loaded else None
    each, seconds = over_0(seen.bytes_per_sample), over_0(seen.seconds_per_sample)
    stages = [stage for stage in case.stages if set(stages_in(stage.name)) <= set(seen.stages)]
    stages.sort(key=lambda stage: -(cost_s(stage) or 0.0))
    held = next((stage for stage in case.suspects if stage in stages), None)
    if held is None or not each or not seconds or seconds < TINY_S:
        return None
    least = _WORTH_SAYING * (cost_s(held) or 0.0)
    return _Same([held, *(s for s in stages if s is not held and (cost_s(s) or 0.0) > least)], each, seconds)


def _is_worth_a_disk(case: Case, same: _Same, total: float) -> bool:
    """Whether what does not fit into memory is better read than made."""
    made_s = same.seconds_per_sample
    if made_s is None or total > _MOST_STORED or mostly_waits(case, same.stages[0]):
        return False
    return same.bytes_per_sample / _SLOW_DISK_BYTES_PER_S <= _QUICKER * made_s


def _seen_twice(case: Case, same: _Same, listed: str) -> str:
    samples = case.evidence.repeated.samples
    if samples is None or same.seconds_per_sample is None:
        return ""
    return (
        f"{plural(samples, 'sample')} made twice came out the same, without a random number, and {listed} took "
        f"{duration(same.seconds_per_sample)} of a worker each time. "
    )


def _gain_of_all(case: Case, stages: list[Stage]) -> float:
    """What the job would gain if all of some stages were free; of one, as it was measured."""
    costs = sum(stage.cost_s_per_batch.estimate for stage in stages if stage.cost_s_per_batch is not None)
    together = case.step_s / max(case.step_s - costs, case.device_s)
    return case.at_most_headroom(max(together, case.gain_of(stages[0])))


RULES = (_amplification, _cache_dataset)
