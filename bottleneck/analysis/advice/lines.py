"""The line of the user's own code that a stage passes its time in, and what to do about what it calls."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import PurePath

from bottleneck.analysis.advice.case import MOSTLY, WORTH_NAMING, Case, Suggestion, rule, work_s_per_batch
from bottleneck.analysis.advice.workers import more_at_once
from bottleneck.analysis.edits.edits import LINE
from bottleneck.analysis.settings import over_0
from bottleneck.results.evidence import LineSeen
from bottleneck.results.format import duration, number, percent, plural
from bottleneck.results.records import Stage

_LONGEST_IN_TITLE = 40
_TARGET = re.compile(r"^(return\b|yield\b|[\w\s.,*]+=(?!=))\s*")
"""What stands in front of what a line computes."""
_READS_MORE = 2.0
"""Bytes that a sample reads over those that it keeps, from which on files hold too much."""
_STORED_ONCE = "once beforehand"
_GROUPED = (
    "group once in __init__: groups = {key: part.to_numpy() for key, part in frame.groupby(column)}, and take a group "
    "by its key"
)
_MASKED = re.compile(r"\b([\w.]+?)(\.loc)?\[\(*\1[.\[]")
"""A frame is searched for the rows that fulfil a condition."""
_REMEDIES = {
    r"\bcopy\.deepcopy\b": (
        "copy only what the sample changes: dict(record) copies one level, array[a:b].copy() a part"
    ),
    r"^pandas\.core\..*\.(__getitem__|__getattr__|xs|iterrows|itertuples)$": (
        "make arrays once in __init__ (frame.to_numpy(), or one for each column), and index those"
    ),
    r"^pandas\.core\..*\.(new_method|query|isin|get_group|_getitem_bool_array)$": _GROUPED,
    r"^(zipfile|gzip|bz2|lzma|_compression)\b.*\._?read\w*$|\b(gzip|zlib|bz2|lzma)\.decompress\(": (
        f"unpack it {_STORED_ONCE}, and store arrays: np.save, and np.load with mmap_mode"
    ),
    r"^(pathlib|glob|os)\b.*\.(\w*glob\w*|iterdir|scandir|walk)$|\b(glob|os)\.(i?glob|listdir|scandir)\(": (
        "list the folder once in __init__, and keep the paths, in a dict by what they are looked up by"
    ),
    r"^tarfile\b": (
        "open the archive once in each worker, at its first sample, and keep {member.name: member for member in "
        "archive.getmembers()}: to find one by its name, all of them are gone through"
    ),
    r"^(h5py|zipfile)\b.*\.(__init__|_?open\w*)$": (
        "open the file once in each worker, at its first sample, and keep it"
    ),
    r"^(pyarrow|zarr)\b.*\.(__init__|_?open\w*|_?read\w*|load\w*)$": (
        "open the file once in each worker, at its first sample, and keep what was read last; then ask for samples in "
        "the order of the file, or store them in smaller groups"
    ),
    r"^multiprocessing\.managers\.": (
        "one process answers all workers, however many: keep what they share in a tensor (tensor.share_memory_()), or "
        "take it once, where each worker starts"
    ),
    r"^(librosa|torchaudio|scipy|resampy|soxr)\..*resample|\bresampl\w*\(": (
        f"resample {_STORED_ONCE}, and store the result"
    ),
    r"^(json|pickle|yaml)\.|\b(pickle|orjson|ujson)\.loads?\(": (
        f"parse it {_STORED_ONCE}, and store arrays: np.save, and np.load with mmap_mode"
    ),
}
"""What is called -> what to do instead."""
_LOADS = re.compile(r"^(torch\.serialization|numpy\.lib\.\w+)\.load$")
_LISTED = re.compile(r"\btorch\.((as_)?tensor|FloatTensor|LongTensor)\((?!np\.|numpy\.|torch\.)")
_COPY_S, _CALL_S = 3e-9, 1e-5
"""More than what a tensor takes for a byte that it copies, and for a sample that it is called for."""


@rule(LINE)
def _costliest_line(case: Case) -> Iterator[Suggestion]:
    """Name the line of the user's own code, or the function, that takes most of a stage that holds the job."""
    for stage in case.suspects:
        lines, work_s = users_lines(case, stage), work_s_per_batch(case, stage)
        place = _place(lines)
        if not place:
            continue
        top, share = place[0], _share(place)
        # One remedy is for all the lines that call the like; a function has it where all of its lines do.
        remedy = _instead(case, top) if len({_instead(case, line) for line in place}) == 1 else ""
        cured = [line for line in lines if line in place or (remedy and _instead(case, line) == remedy)]
        part, file, more = _share(cured), PurePath(top.path or "").name, len(cured) - len(place)
        takes = "" if work_s is None else f": {duration(work_s * share)} of a worker's time for each batch"
        together = f" and {plural(more, 'line')} like it ({percent(part)} together)" if more else ""
        named, what = f"Line {top.line}", _in_short(top.code)
        if len(place) > 1:
            named, what = str(top.function), f", in {len(place)} lines"
        yield Suggestion(
            stage=stage.name,
            title=f"{named} of {file} takes {percent(share)} of {stage.name}{what}",
            why=f"It {f'calls {top.calls} and ' if top.calls else ''}{'waits' if _waits(top) else 'computes'} for "
            f"{percent(share)} of {stage.name}{takes}. The gain is what it{together} would bring if free.",
            how=remedy or f"see {top.function or 'that line'}",
            evidence={
                "path": top.path, "line": top.line, "share": share, "waiting_share": top.waiting_share,
                "calls": top.calls, "gain": case.gain_of(stage),
            },
            gain=case.gain_of_part(stage, part),
            cause=bool(remedy) and part > MOSTLY,
        )  # fmt: skip


def _share(lines: Iterable[LineSeen]) -> float:
    return min(1.0, sum(max(0.0, line.share or 0.0) for line in lines))


def _place(lines: list[LineSeen]) -> list[LineSeen]:
    """The costliest line; where none is worth it by itself, the lines of a function that are together."""
    found = [[line] for line in lines]
    found += [[one for one in lines if (one.path, one.function) == (line.path, line.function)] for line in lines]
    worth = [one for one in found if one[0].path and one[0].line is not None and _share(one) >= WORTH_NAMING]
    return max(worth, key=lambda one: (len(one) == 1, _share(one)), default=[])


def users_lines(case: Case, stage: Stage) -> list[LineSeen]:
    """The lines of the user's own code that a stage passes its time in."""
    return [line for line in case.evidence.lines if line.stage == stage.name and line.library is False]


def top_line(case: Case, stage: Stage) -> LineSeen | None:
    """The line of the user's own code that takes most of a stage."""
    return max(users_lines(case, stage), key=lambda line: line.share or 0.0, default=None)


def has_own_remedy(case: Case, stage: Stage) -> bool:
    """Whether the costliest line calls what has a remedy other than to store the result once."""
    top = top_line(case, stage)
    remedy = _instead(case, top) if top is not None and (top.share or 0.0) >= WORTH_NAMING else ""
    return bool(remedy) and _STORED_ONCE not in remedy


def _waits(line: LineSeen) -> bool:
    return line.waiting_share is not None and line.waiting_share > MOSTLY


def _in_short(code: str | None) -> str:
    """What a line computes, behind the title."""
    text = _TARGET.sub("", code or "")
    return f": {text if len(text) <= _LONGEST_IN_TITLE else f'{text[: _LONGEST_IN_TITLE - 3]}...'}" if text else ""


def _instead(case: Case, line: LineSeen) -> str:
    """What to do instead of what a line calls; empty where that is not known."""
    calls, code = line.calls or "", line.code or ""
    if calls.startswith("pandas.core.") and _MASKED.search(code):
        return _GROUPED
    # What a module calls says less than the name that the user gave the module.
    seen = [calls, code] if not calls or calls.endswith((".forward", ".__call__")) else [calls]
    known = next(
        (remedy for pattern, remedy in _REMEDIES.items() if any(re.search(pattern, one) for one in seen)), None
    )
    if known is not None:
        return known
    read, batch_size = over_0(case.evidence.reads.requested_bytes_per_sample), case.positive("batch_size")
    kept = over_0(case.evidence.payload.bytes)
    if _LOADS.search(calls or code) and read and kept and batch_size and read >= _READS_MORE * kept / batch_size:
        return (
            f"a sample reads {number(read * batch_size / kept)} times the bytes that it keeps: store what a sample "
            'keeps by itself, or read only that part: torch.load(path, mmap=True), np.load(path, mmap_mode="r")'
        )
    stage = case.stage(line.stage)
    made_s = _share([line]) * ((stage and work_s_per_batch(case, stage)) or 0.0)
    if not calls and _LISTED.search(code) and kept and made_s > _COPY_S * kept + _CALL_S * (batch_size or 1):
        return "that takes the numbers of a list one by one; join arrays first: torch.from_numpy(np.stack(arrays))"
    return (
        more_at_once(case, "while it waits, more workers help: try {setting}; or fetch ahead") if _waits(line) else ""
    )


RULES = (_costliest_line,)
