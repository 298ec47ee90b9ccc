"""Advice on the lines of a script's loop, in each part of a step, by what they call."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePath

from bottleneck.analysis.advice import wall_clock
from bottleneck.analysis.advice.case import WORTH, Case, Suggestion, rule
from bottleneck.analysis.advice.lines import in_short
from bottleneck.analysis.advice.remedies import EVERY_N, Remedy, remedy_in_loop
from bottleneck.analysis.advice.wall_clock import known_s
from bottleneck.analysis.settings import MOSTLY, raw_usage
from bottleneck.results.evidence import LineSeen
from bottleneck.results.format import duration, names, percent
from bottleneck.results.names import COMPUTE

MATTERS = 0.1
"""Share above which a part is worth a word."""
_BUSY = 0.9
_IMPOSSIBLE = 1.1
"""Time of the loader alone over that of the job, above which it was disturbed."""
MIN_LEFT = 0.05
"""Part of the time that always remains: no change removes all of it."""
_SCHEDULES = re.compile(r"\w*sched\w*\.step\(", re.IGNORECASE)
"""Calls that belong to each step."""
_SAVES = re.compile(r"\bsave\w*\(")
_NO_INPUT = re.compile(r"\.(zero_grad|train)\(|^for |\bnext\(|autocast")
"""Lines before the model is called that workers cannot take over, as are those that only move the batch."""
_MOVES = re.compile(r"\.(to|cuda|pin_memory)\(")


def part_s(case: Case, name: str) -> float:
    """Return the seconds per step of a part of the wall clock; 0 if unknown."""
    part = next((part for part in case.wall_clock if part.name == name), None)
    return 0.0 if part is None else known_s(part.s_per_step)


def whole_s(case: Case) -> float:
    """Return the wall clock of a step, with its part of the time between steps."""
    return sum(known_s(part.s_per_step) for part in case.wall_clock)


def gain_within(case: Case, saved_s: float, workers_s: float = 0.0) -> float:
    """Return a step's largest gain without a part of it, limited to the loader's supply if that is known."""
    is_known = case.workers and case.loader_s <= _IMPOSSIBLE * case.step_s
    loader_s = case.loader_s + workers_s if is_known else 0.0
    return case.step_s / max(case.step_s - saved_s, loader_s, MIN_LEFT * case.step_s)


def most_of_it(line: LineSeen | None) -> str:
    """Return the line that takes the most of a part, as a sentence."""
    if line is None or line.path is None:
        return ""
    calls = f", in {line.calls}" if line.calls else ""
    return f" Line {line.line} of {PurePath(line.path).name} takes {percent(line.share)} of that{calls}."


def lines_of(case: Case, stage: str) -> list[LineSeen]:
    """Return the lines of a part of the loop with a known place."""
    return [one for one in case.evidence.loop.lines if one.stage == stage and one.path and one.line is not None]


def top_of(lines: list[LineSeen], part: float) -> LineSeen | None:
    """Return the costliest line, with its share of a part of them all."""
    top = max(lines, key=lambda line: line.share or 0.0, default=None)
    return top if top is None or not part else replace(top, share=min(1.0, (top.share or 0.0) / part))


def _parsed(code: str | None) -> ast.stmt | None:
    """Return a line of the user's code as a statement; None if it is not a whole one."""
    try:
        body = ast.parse(code or "").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return body[0] if body else None


def found_at(line: LineSeen | None) -> dict[str, object]:
    """Return the place of a line, as evidence."""
    return {"path": None, "line": None} if line is None else {"path": line.path, "line": line.line}


_AFTER = "after"
_PARTS = {"input": wall_clock.INPUT, "step": wall_clock.STEP, _AFTER: wall_clock.AFTER}
"""The parts of a step, by their stage in the evidence -> the part of the wall clock."""


def _with_remedies(case: Case) -> dict[Remedy, list[LineSeen]]:
    """Return lines of the loop that have a remedy, by remedy; if one averages weights, its function's others too."""
    lines = [line for line in case.evidence.loop.lines if line.library is False and line.path and line.line is not None]
    found: dict[Remedy, list[LineSeen]] = {}
    for line in lines:
        remedy = remedy_in_loop(line)
        if remedy is None:
            alike = [other for other in lines if (other.path, other.function) == (line.path, line.function)]
            averages = [known for other in alike if (known := remedy_in_loop(other)) is not None and known.of_function]
            # The function that has the loop is at work in other parts, too.
            remedy = averages[0] if averages and len({other.stage for other in alike}) == 1 else None
        if remedy is not None:
            found.setdefault(remedy, []).append(line)
    return found


def _line_part_s(case: Case, stage: str | None) -> float:
    """Return the seconds of a part of a step; 0 if an asynchronous device hides the host's work there."""
    hidden = stage != _AFTER and _is_hidden(case)  # what it hides of the last part is left out there already
    return 0.0 if hidden else part_s(case, _PARTS.get(stage or "", ""))


@rule("loop-line")
def _loop_line(case: Case) -> Iterator[Suggestion]:
    """Advise on lines of the loop by their calls, in any part of a step."""
    for remedy, lines in _with_remedies(case).items():
        seconds = [known_s(line.share) * _line_part_s(case, line.stage) for line in lines]
        taken_s, top = sum(seconds), lines[seconds.index(max(seconds))]
        gain, share = gain_within(case, taken_s), taken_s / case.step_s
        if taken_s < MATTERS * case.step_s or gain < WORTH:
            continue
        if _SAVES.search(top.code or "") and part_s(case, wall_clock.SAVING) >= MATTERS * whole_s(case):
            continue
        numbers = sorted({line.line for line in lines if line.path == top.path and line.line is not None})
        one, at = len(numbers) == 1, f"{names(list(map(str, numbers)))} of {PurePath(top.path or '').name}"
        takes = f"{'line' if one else 'lines'} {at} {'takes' if one else 'take'} {percent(share)} of each step"
        yield Suggestion(
            stage=COMPUTE,
            title=f"{remedy.title}: {takes}" if remedy.title else f"{takes[0].upper()}{takes[1:]}{in_short(top.code)}",
            why=f"The loop spends {duration(taken_s)} of each {duration(case.step_s)} step there"
            f"{f', in {top.calls}' if top.calls else ''}. The gain assumes that this takes no time.",
            how=f"{remedy.how}\n    {call_of(top)}" if remedy.how.startswith("if ") else remedy.how,
            evidence={
                "path": top.path,
                "line": top.line,
                "calls": top.calls,
                "share": min(1.0, share),
                "s_per_step": taken_s,
                "step_s": case.step_s,
            },
            gain=gain,
        )


def call_of(line: LineSeen) -> str:
    """Return the line if it is only a call: assigned or returned values are needed in each step."""
    code = _parsed(line.code) if not line.library else None
    return line.code or "" if isinstance(code, ast.Expr) and isinstance(code.value, ast.Call) else "..."


@rule("after-step")
def _after_step(case: Case) -> Iterator[Suggestion]:
    """Advise to do less often what takes much of each step after the training, without a separate remedy."""
    seen, known = lines_of(case, _AFTER), [line for lines in _with_remedies(case).values() for line in lines]
    others = [line for line in seen if line not in known and not _SCHEDULES.search(line.code or "")]
    if seen and not others:
        return
    part = max(0.0, 1 - sum(line.share or 0.0 for line in seen if line not in others))
    after_s, line = part * part_s(case, wall_clock.AFTER), top_of(others, part)
    gain = gain_within(case, after_s)
    if after_s < MATTERS * case.step_s or gain < WORTH:
        return
    saves = line is not None and _SAVES.search(line.code or "")
    if saves and part_s(case, wall_clock.SAVING) >= MATTERS * whole_s(case):
        return
    is_most = line is not None and (line.share or 0.0) >= MOSTLY
    rest = ", not counting training and lines with separate advice" if len(others) < len(seen) else ""
    yield Suggestion(
        stage=COMPUTE,
        title=f"Do less after the optimizer's step: that takes {percent(after_s / case.step_s)} of each step",
        why=f"From the optimizer's step until it asks for the next batch, the loop takes {duration(after_s)} of each "
        f"{duration(case.step_s)} step{rest}.{most_of_it(line)} Work that is not needed in every step can be done "
        "less often.",
        how=f"{EVERY_N}\n    {call_of(line) if line is not None and is_most else '...'}",
        evidence={"after_s_per_step": after_s, "step_s": case.step_s, **found_at(line)},
        gain=gain,
    )


@rule("input-in-loop")
def _input_in_loop(case: Case) -> Iterator[Suggestion]:
    """Advise to move the loop's work on a batch before the model into the workers."""
    lines = (line for line in lines_of(case, "input") if not line.library and remedy_in_loop(line) is None)
    works = [line for line in lines if not _only_moves(line.code or "", copies=case.on_accelerator)]
    part = min(1.0, sum(line.share or 0.0 for line in works))
    input_s, line = part * part_s(case, wall_clock.INPUT), top_of(works, part)
    if not case.workers or input_s < MATTERS * case.step_s or line is None:
        return
    sending_s = sum(stage.exposed_s_per_batch.estimate for stage in case.held_by if stage.exposed_s_per_batch)
    if case.transport_bound and input_s < sending_s:  # workers may have more to send then
        return
    if part < MOSTLY or _gains_nothing(case):
        return
    gain = gain_within(case, input_s, input_s / case.workers)
    if gain < WORTH:
        return
    yield Suggestion(
        stage=COMPUTE,
        title="Let the workers do the work that the loop does on each batch before the model",
        why=f"Between the batch and the model, the loop itself works for {duration(input_s)} of each "
        f"{duration(case.step_s)} step, and the rest of the training waits.{most_of_it(line)}",
        how=f"move the work of line {line.line} of {PurePath(line.path or '').name} into the collate function, "
        "DataLoader(..., collate_fn=collate), or into the dataset; on a GPU, copy first and do it there",
        evidence={"input_s_per_step": input_s, "step_s": case.step_s, **found_at(line)},
        gain=gain,
    )


def _only_moves(code: str, *, copies: bool) -> bool:
    """Return True if a line does not work on the batch; an incomplete statement that moves something does.

    A line that copies is taken for one that moves the batch and does more, which takes its time.
    """
    if _NO_INPUT.search(code):
        return True
    line = _parsed(code)
    if copies and line is not None and any(isinstance(n, ast.Call) and _is_moved(n) for n in ast.walk(line)):
        return True
    value = getattr(line, "annotation" if isinstance(line, ast.AnnAssign) else "value", None)  # of a comprehension
    return _MOVES.search(code) is not None and (line is None or (isinstance(value, ast.expr) and _is_moved(value)))


def _is_moved(value: ast.expr) -> bool:
    """Return True for a name, an attribute or an item, at most moved; or for several of them."""
    if isinstance(value, ast.Tuple | ast.List):
        return all(map(_is_moved, value.elts))
    if isinstance(value, ast.ListComp | ast.GeneratorExp):
        return _is_moved(value.elt)
    if isinstance(value, ast.DictComp):
        return _is_moved(value.value)
    if isinstance(value, ast.Call):
        called = value.func
        return (
            isinstance(called, ast.Attribute)
            and _MOVES.match(f".{called.attr}(") is not None
            and _is_moved(called.value)
        )
    while isinstance(value, ast.Attribute | ast.Subscript):
        value = value.value
    return isinstance(value, ast.Name)


def _is_hidden(case: Case) -> bool:
    """Return True if the device computes for all of the step, so that the host's work until then is free."""
    busy_s = known_s(case.evidence.trace.device.device_busy_s_per_step)
    return case.on_accelerator and busy_s > _BUSY * case.device_s


def _gains_nothing(case: Case) -> bool:
    """Return True if no core is left for additional work of the workers, or if the device hides it."""
    if _is_hidden(case):
        return True
    raw, cores = raw_usage(case.evidence), case.evidence.utilisation.cores.usable
    return (
        raw is not None and cores is not None and known_s(raw.cores_main) + known_s(raw.cores_workers) > _BUSY * cores
    )


RULES = (_loop_line, _after_step, _input_in_loop)
