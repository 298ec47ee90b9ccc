"""The cause within a stage that makes samples: more is read, unpacked, decoded or sent than is kept."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bottleneck.analysis.advice.case import WORTH_NAMING, Case, Suggestion, rule
from bottleneck.analysis.advice.constructions import is_opened_each_time
from bottleneck.analysis.advice.lines import top_line
from bottleneck.analysis.advice.samples import IMAGE, PIXELS_TOO_MANY
from bottleneck.analysis.advice.transfer import GOES_BY_BYTES
from bottleneck.analysis.advice.transforms import mostly_waits
from bottleneck.analysis.edits.edits import AMPLIFIED
from bottleneck.analysis.network import find_network_limit
from bottleneck.analysis.settings import MOSTLY, over_0
from bottleneck.results.evidence import AmplifiedSeen
from bottleneck.results.format import frequency, percent, plural, significant, size
from bottleneck.results.names import HANDOFF, stages_in
from bottleneck.results.records import Stage

_FACTOR = 4.0
"""Ratio of touched to kept bytes above which it is too much."""
_READ, _VIEWS = "read", "views"
"""Sources of all reads of a worker, and of bytes sent with batches."""
_KEEP_HANDLE = (
    "open each file once in each worker, at its first sample, and keep it: functools.lru_cache on the opening"
)
_PARTS = (
    'store arrays once, uncompressed: np.save(path, array); in __getitem__ np.load(path, mmap_mode="r") and the part '
    "of it that the sample keeps"
)
_CHUNKS = (
    "Store the data in chunks of a sample's shape",
    "unpacks chunks of",
    "rewrite the file with chunks=(1, *data.shape[1:]), or with chunks of the size that a sample reads",
)
_REMEDIES = {
    "parquet": (
        "Use all rows of a row group, not just one",
        "decodes",
        "keep the last row group in memory, and draw its rows one after another (groups in random "
        "order, then rows within them); or write small groups once: pq.write_table(table, path, row_group_size=1)",
    ),
    "hdf5": _CHUNKS,
    "zarr": _CHUNKS,
    "nifti": ("Store the volumes uncompressed, and read a part", "unpacks", _PARTS),
    "video": (
        "Decode only the frames that are used",
        "decodes",
        "seek to the first one (capture.set(cv2.CAP_PROP_POS_FRAMES, first), or with PyAV container.seek(pts, "
        "stream=stream)), which decodes from the key frame before it; write videos with more key frames (ffmpeg -g "
        "15), or store the frames once",
    ),
    "saved-tensors": (
        "Save clones: the files hold whole storages",
        "loads",
        "torch.save(tensor.clone(), path) where the files are written, and rewrite them: a view is saved with its "
        "whole storage",
    ),
    "archive": ("Keep the archive open", "unpacks", _PARTS),
    "compressed": ("Store the data uncompressed, and read a part", "unpacks", _PARTS),
    IMAGE: (
        "Decode fewer pixels: resize the images once, beforehand",
        "decodes",
        "resize the files once, to little more than what a sample uses; or, with OpenCV, decode small: "
        "cv2.imread(path, cv2.IMREAD_REDUCED_COLOR_2)",
    ),
    "array-file": ("Read only the part of the file that is kept", "reads", _PARTS),
    _READ: (
        "Read only the part of the files that is kept",
        "reads",
        f"store only the part that a sample keeps; or {_PARTS}",
    ),
    _VIEWS: (
        "Return clones of views: workers send whole storages",
        "sends",
        "return part.clone() where __getitem__ or collate_fn takes a part of a larger tensor: a view is sent with "
        "its whole storage",
    ),
}
"""Source -> title, verb for the bytes it touches, and remedy."""
_READS = re.compile(r"\b_?(load|read|open|parse|fetch)\w*(\(|$)|^(json|pickle|yaml)\.")
"""Sources for which a line is slow because of its reads."""
_GIVE_ALL = ("saved-tensors", "hdf5", "zarr")
"""Sources that count as kept all that the caller asked for, of which the sample may keep a part."""
_READS_IMAGES = re.compile(r"image|imread|jpe?g|png|^PIL\b", re.IGNORECASE)
"""Sources whose files are not smaller if read in part."""


@rule(AMPLIFIED)
def _amplification(case: Case) -> Iterator[Suggestion]:
    """Name data that is read, unpacked or decoded for each sample but not kept."""
    for stage in case.suspects:
        sends = HANDOFF in stages_in(stage.name)
        rows = [s for s in case.evidence.amplification if s.stage == stage.name or (sends and s.source == _VIEWS)]
        if case.evidence.loader.decoded_pixels_per_sample:  # `image-decoding` says more
            rows = [seen for seen in rows if seen.source != IMAGE]
        parts = ((seen, _part_too_much(case, stage, seen)) for seen in rows if seen.source in _REMEDIES)
        found = [(seen, part) for seen, part in parts if part >= WORTH_NAMING]
        if not found:
            continue
        seen, part = found[0]
        (title, does, how), opens, factor = _REMEDIES[str(seen.source)], is_opened_each_time(seen), _factor(seen)
        top, share = top_line(case, stage), over_0(seen.share) if seen.stage == stage.name else None
        takes = f"That takes {percent(share)} of {stage.name}. " if share is not None else ""
        yield Suggestion(
            stage=stage.name,
            title=title if factor >= _FACTOR else "Keep the files open from sample to sample",
            why=f"{_in_numbers(seen, does)}{takes}The gain assumes that {percent(part)} of {stage.name} takes no time.",
            how="; ".join([_KEEP_HANDLE] * opens + [how] * (factor >= _FACTOR)),
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
    """Return touched over kept bytes; 0 if either is unknown or zero."""
    touched, kept = over_0(seen.touched_per_sample), over_0(seen.kept_per_sample)
    return touched / kept if touched and kept else 0.0


def _part_too_much(case: Case, stage: Stage, seen: AmplifiedSeen) -> float:
    """Return the part of a stage's time spent on data that is not kept, and on opening the same files."""
    factor = _factor(seen)
    if seen.stage != stage.name:  # the hand-off, which goes by the byte where it has many
        nbytes = (over_0(seen.touched_per_sample) or 0.0) * (case.positive("batch_size") or 1)
        return 1 - 1 / factor if factor >= _FACTOR and nbytes >= GOES_BY_BYTES else 0.0
    if seen.source == _READ and find_network_limit(case.evidence) is not None:  # files are not what it waits for
        return 0.0
    if seen.source == _READ:
        return 0.0 if factor < _FACTOR else (1 - 1 / factor) * _share_of_reading(case, stage)
    share = over_0(seen.share) or 0.0
    opening = min(share, over_0(seen.opening_share) or 0.0)
    part = (share - opening) * (1 - 1 / factor) if factor >= _FACTOR else 0.0
    return part + (opening if is_opened_each_time(seen) or part else 0.0)


def _share_of_reading(case: Case, stage: Stage) -> float:
    """Return the reading part of a stage; 0 if it computes, or if a library or images say more about it."""
    facts, others = case.evidence.loader, (s for s in case.evidence.amplification if s.stage == stage.name)
    libraries = [s for s in others if s.source not in (_READ, _VIEWS) and (over_0(s.share) or 0.0) >= WORTH_NAMING]
    if any(_factor(seen) >= _FACTOR or seen.source not in _GIVE_ALL for seen in libraries):
        return 0.0
    if libraries:
        return min(1.0, max(over_0(seen.share) or 0.0 for seen in libraries))
    decoded, used = over_0(facts.decoded_pixels_per_sample), over_0(facts.used_pixels_per_sample)
    if decoded and used and decoded >= PIXELS_TOO_MANY * used:
        return 0.0
    if mostly_waits(case, stage):
        return MOSTLY
    top = top_line(case, stage)
    seen = "" if top is None else top.calls or top.code or ""
    reads = _READS.search(seen) and not _READS_IMAGES.search(seen)
    return over_0(top.share) or 0.0 if top is not None and reads else 0.0


def _in_numbers(seen: AmplifiedSeen, does: str) -> str:
    factor, told = _factor(seen), ""
    if factor:
        much, less = (
            frequency(n) if seen.unit == "frames" else size(n) for n in (seen.touched_per_sample, seen.kept_per_sample)
        )
        rows = f" ({frequency(seen.rows_per_sample)} rows)" if seen.rows_per_sample else ""
        times = f": {significant(factor, 2)} times as much" if factor >= _FACTOR else ""
        told = f"A sample {does} {much}{' frames' * (seen.unit == 'frames')}{rows} and keeps {less}{times}. "
    if is_opened_each_time(seen) and seen.samples and seen.opens and seen.opened_files:
        files = plural(seen.opened_files, "file")
        told += f"{plural(seen.samples, 'sample')} opened {files} {plural(seen.opens, 'time')}. "
    return told


RULES = (_amplification,)
