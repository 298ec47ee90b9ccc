"""The line of the user's own code in which a stage spends its time, and remedies for what it calls."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import PurePath

from bottleneck.analysis.advice.case import WORTH_NAMING, Case, Suggestion, rule
from bottleneck.analysis.advice.constructions import construction_in
from bottleneck.analysis.advice.cores import threads_of_little_use
from bottleneck.analysis.advice.remedies import Remedy, remedy_of
from bottleneck.analysis.advice.stages import wait_less
from bottleneck.analysis.advice.transforms import work_s_per_batch
from bottleneck.analysis.edits.edits import LINE
from bottleneck.analysis.parts import waiting_share
from bottleneck.analysis.settings import MOSTLY, over_0
from bottleneck.results.evidence import LineSeen
from bottleneck.results.format import duration, number, percent, plural
from bottleneck.results.names import makes_samples, stages_in
from bottleneck.results.records import Stage

_MAX_IN_TITLE = 40
_TARGET = re.compile(r"^(return\b|yield\b|[\w\s.,*]+=(?!=))\s*")
"""Text before the expression of a line."""
_READS_MORE = 2.0
"""Bytes read over bytes kept of a sample, above which files hold too much."""
_LOADS = re.compile(r"^(torch\.serialization|numpy\.lib\.\w+)\.load$")
_LISTED = re.compile(r"\btorch\.((as_)?tensor|FloatTensor|LongTensor)\((?!np\.|numpy\.|torch\.)")
_COPY_S, _CALL_S = 3e-9, 1e-5
"""Upper bounds of a tensor's seconds to copy a byte, and to be called for a sample."""


@rule(LINE)
def _costliest_line(case: Case) -> Iterator[Suggestion]:
    """Name the line of the user's own code, or the function, that takes most of a stage that limits the job.

    In an undecided job, only a line with a known remedy.
    """
    for stage in case.may_gain:
        lines, made = users_lines(case, stage), construction_in(case, stage)
        place = _place(lines)
        # What makes an object again is not made faster.
        if not place or (made is not None and (over_0(made.share) or 0.0) >= _share(place)):
            continue
        # One remedy is for all the lines that call the like; a function has it where all of its lines do.
        remedy = _remedy(case, place[0]) if len({_remedy(case, line) for line in place}) == 1 else None
        cured = [line for line in lines if line in place or (remedy and _remedy(case, line) == remedy)]
        if not case.undecided or (remedy is not None and _share(cured) > MOSTLY):
            yield _suggestion(case, stage, place, cured, remedy)


def _suggestion(
    case: Case, stage: Stage, place: list[LineSeen], cured: list[LineSeen], remedy: Remedy | None
) -> Suggestion:
    """Return advice on the lines of a place, and on all lines that its remedy cures."""
    top, share, part, work_s = place[0], _share(place), _share(cured), work_s_per_batch(case, stage)
    file, more = PurePath(top.path or "").name, len(cured) - len(place)
    takes = "" if work_s is None else f": {duration(work_s * share)} of a worker's time for each batch"
    together = f" and {plural(more, 'line')} like it ({percent(part)} together)" if more else ""
    calls = f"calls {top.calls} and " if top.calls else ""
    named, what, does = f"Line {top.line}", in_short(top.code), "waits" if _waits(case, top) else "computes"
    if len(place) > 1:
        named, what = str(top.function), f", in {len(place)} lines"
    return Suggestion(
        stage=stage.name,
        title=f"{named} of {file} takes {percent(share)} of {stage.name}{what}",
        why=f"It {calls}{does} for {percent(share)} of {stage.name}{takes}. The gain assumes that it{together} "
        f"{'take' if more else 'takes'} no time.{case.doubt}",
        how=_general_how(case, stage, top) + _about_threads(case, top) if remedy is None else remedy.how,
        evidence={
            "path": top.path,
            "line": top.line,
            "share": share,
            "waiting_share": top.waiting_share,
            "calls": top.calls,
            "gain": case.gain_of(stage),
        },
        gain=case.gain_of_part(stage, part),
        cause=remedy is not None and part > MOSTLY,
    )


def _share(lines: Iterable[LineSeen]) -> float:
    return min(1.0, sum(max(0.0, line.share or 0.0) for line in lines))


def _place(lines: list[LineSeen]) -> list[LineSeen]:
    """Return the costliest line; if no single line is worth it, the lines of one function together."""
    found = [[line] for line in lines]
    found += [[one for one in lines if (one.path, one.function) == (line.path, line.function)] for line in lines]
    worth = [one for one in found if one[0].path and one[0].line is not None and _share(one) >= WORTH_NAMING]
    return max(worth, key=lambda one: (len(one) == 1, _share(one)), default=[])


def users_lines(case: Case, stage: Stage) -> list[LineSeen]:
    """Return the lines of the user's own code in which a stage spends its time."""
    return [line for line in case.evidence.lines if line.stage == stage.name and line.library is False]


def top_line(case: Case, stage: Stage) -> LineSeen | None:
    """Return the line of the user's own code that takes most of a stage."""
    return max(users_lines(case, stage), key=lambda line: line.share or 0.0, default=None)


def has_own_remedy(case: Case, stage: Stage) -> bool:
    """Return True if an object is made again, or the costliest line has a remedy other than storing the result once."""
    if construction_in(case, stage) is not None:
        return True
    top = top_line(case, stage)
    remedy = _remedy(case, top) if top is not None and (top.share or 0.0) >= WORTH_NAMING else None
    return remedy is not None and not remedy.stores


def _waits(case: Case, line: LineSeen) -> bool:
    """Return True if a line spends most of its time without computing, at most for as long as its whole stage."""
    stage, share = case.stage(line.stage), over_0(line.share)
    of_stage = None if stage is None else waiting_share(stage, case.evidence)
    most = 1.0 if of_stage is None or not share else of_stage / share
    return line.waiting_share is not None and min(line.waiting_share, most) > MOSTLY


def in_short(code: str | None) -> str:
    """Return the expression of a line in short, for the end of a title."""
    text = _TARGET.sub("", code or "")
    return f": {text if len(text) <= _MAX_IN_TITLE else f'{text[: _MAX_IN_TITLE - 3]}...'}" if text else ""


def _remedy(case: Case, line: LineSeen) -> Remedy | None:
    """Return the remedy for what a line calls; None if unknown."""
    known = remedy_of(line, waits=_waits(case, line))
    if known is not None:
        return known
    calls, code = line.calls or "", line.code or ""
    read, batch_size = over_0(case.evidence.reads.requested_bytes_per_sample), case.positive("batch_size")
    kept = over_0(case.evidence.payload.bytes)
    if _LOADS.search(calls or code) and read and kept and batch_size and read >= _READS_MORE * kept / batch_size:
        return Remedy(
            f"a sample reads {number(read * batch_size / kept)} times the bytes that it keeps: store only the "
            'part that samples keep, or read only that part: torch.load(path, mmap=True), np.load(path, mmap_mode="r")'
        )
    stage = case.stage(line.stage)
    made_s = _share([line]) * ((stage and work_s_per_batch(case, stage)) or 0.0)
    if not calls and _LISTED.search(code) and kept and made_s > _COPY_S * kept + _CALL_S * (batch_size or 1):
        return Remedy(
            "that takes the numbers of a list one by one; join arrays first: torch.from_numpy(np.stack(arrays))"
        )
    return None


def _about_threads(case: Case, line: LineSeen) -> str:
    """Return a clause on the threads of code in C that computes; empty if nothing is known to say."""
    clause = "" if line.calls or _waits(case, line) else threads_of_little_use(case)
    return f"; {clause}" if clause else ""


def _general_how(case: Case, stage: Stage, line: LineSeen) -> str:
    """Return general advice on a line of which only the time is known."""
    if _waits(case, line):
        return wait_less(case, stage)[1]
    if not makes_samples(stage.name):
        return (
            "do per-sample work in __getitem__, and join all samples in one call (torch.stack, "
            "torch.nn.utils.rnn.pad_sequence)"
        )
    if set(stages_in(stage.name)) <= set(case.evidence.repeated.stages):
        return (
            "it returns the same for an index each time: compute that once, beforehand, and store it: np.save, and "
            "np.load with mmap_mode"
        )
    return (
        "do its non-random part once, in __init__ or beforehand, and keep the result; give the rest less data "
        "(only the part that is kept, 32-bit numbers), or process a whole batch at once"
    )


RULES = (_costliest_line,)
