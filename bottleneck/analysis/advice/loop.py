"""What to do about a script's loop: its input work, logging, validation and checkpoints, and switches left on."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePath

from bottleneck.analysis.advice import wall_clock
from bottleneck.analysis.advice.case import MOSTLY, Case, Suggestion, rule
from bottleneck.analysis.advice.saturation import raw_usage
from bottleneck.analysis.advice.wall_clock import Evaluations, evaluations, is_made_again, known_s, place_of_loader
from bottleneck.analysis.advice.workers import WORTH
from bottleneck.analysis.settings import over_0
from bottleneck.results.evidence import LineSeen
from bottleneck.results.format import duration, names, number, percent, plural
from bottleneck.results.names import COMPUTE

_MATTERS = 0.1
"""The share from which on a part is worth a word."""
_OFTEN = 2
"""Times that something has been seen at least, for how often it comes to be known."""
_VALIDATES = 0.2
"""The share of the wall clock from which on a validation whose workers stay is worth a word: it is done on purpose."""
_BUSY = 0.9
_IMPOSSIBLE = 1.1
"""Time of the loader alone over that of the job, from which on it was disturbed."""
_LEAST_LEFT = 0.05
"""Of the time: no change takes all of it."""
_TRAINS = re.compile(
    r"\w*sched\w*\.step\(|(?:\b|_)(?:ema|swa)(?:_\w*)?(?:\.(?:update\w*|step))?\(|\bupdate_parameters\(|lerp_\("
    r"|\.mul_\(.*\.add_\(|\b1(?:\.0?)? ?- ?[\w.]*(?:decay|momentum)",
    re.IGNORECASE,
)
"""Calls of what belongs to the training, and cannot simply be done less often: schedules and averages of weights."""
_SAVES = re.compile(r"\bsave\w*\(")
_NO_INPUT = re.compile(r"\.(zero_grad|train)\(|^for |\bnext\(|autocast")
"""Lines before the model is called that workers cannot take over, as are those that only move the batch."""
_MOVES = re.compile(r"\.(to|cuda|pin_memory)\(")


def _seconds(case: Case, name: str) -> float:
    part = next((part for part in case.wall_clock if part.name == name), None)
    return 0.0 if part is None else known_s(part.s_per_step)


def _whole_s(case: Case) -> float:
    return sum(known_s(part.s_per_step) for part in case.wall_clock)


def _gain_within(case: Case, saved_s: float, workers_s: float = 0.0) -> float:
    """What a step gains at most without a part of it: no more than the loader can supply, where that is known."""
    is_known = case.workers and case.loader_s <= _IMPOSSIBLE * case.step_s
    loader_s = case.loader_s + workers_s if is_known else 0.0
    return case.step_s / max(case.step_s - saved_s, loader_s, _LEAST_LEFT * case.step_s)


def _gain_between(case: Case, saved_s: float) -> float:
    """What the whole training gains at most without a part of the wall clock."""
    whole_s = _whole_s(case)
    return whole_s / max(whole_s - saved_s, _LEAST_LEFT * whole_s)


def _most_of_it(line: LineSeen | None) -> str:
    """The line that takes the most of a part, as a sentence."""
    if line is None or line.path is None:
        return ""
    calls = f", in {line.calls}" if line.calls else ""
    return f" Line {line.line} of {PurePath(line.path).name} takes {percent(line.share)} of that{calls}."


def _lines(case: Case, stage: str) -> list[LineSeen]:
    """The lines of a part of the loop whose place is known."""
    return [one for one in case.evidence.loop.lines if one.stage == stage and one.path and one.line is not None]


def _top_of(lines: list[LineSeen], part: float) -> LineSeen | None:
    """The costliest line, with its share of a part of them all."""
    top = max(lines, key=lambda line: line.share or 0.0, default=None)
    return top if top is None or not part else replace(top, share=min(1.0, (top.share or 0.0) / part))


def _parsed(code: str | None) -> ast.stmt | None:
    """A line of the user's as a statement; None where it is not a whole one."""
    try:
        body = ast.parse(code or "").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return body[0] if body else None


def _found_at(line: LineSeen | None) -> dict[str, object]:
    return {"path": None, "line": None} if line is None else {"path": line.path, "line": line.line}


# --- in each step -----------------------------------------------------------------------------------------


@rule("after-step")
def _after_step(case: Case) -> Iterator[Suggestion]:
    """Advise to log less often where that takes much of each step."""
    seen = _lines(case, "after")
    others = [line for line in seen if not _trains(line)]
    if seen and not others:
        return
    part = max(0.0, 1 - sum(line.share or 0.0 for line in seen if _trains(line)))
    after_s, line = part * _seconds(case, wall_clock.AFTER), _top_of(others, part)
    gain = _gain_within(case, after_s)
    code = "" if line is None else line.code or ""
    if after_s < _MATTERS * case.step_s or gain < WORTH:
        return
    if _SAVES.search(code) and _seconds(case, wall_clock.SAVING) >= _MATTERS * _whole_s(case):
        return
    do = "Collect garbage" if re.search(r"\bgc\.collect\(|\bempty_cache\(", code) else "Log"
    yield Suggestion(
        stage=COMPUTE,
        title=f"{do} every N steps: what follows the optimizer's step takes {percent(after_s / case.step_s)} of each "
        "step",
        why=f"From the optimizer's step until it asks for the next batch, the loop takes {duration(after_s)} of each "
        f"{duration(case.step_s)} step{', without what trains' if len(others) < len(seen) else ''}: "
        f"logging, metrics, what is shown or written.{_most_of_it(line)}",
        how=_every_n_steps(line),
        evidence={"after_s_per_step": after_s, "step_s": case.step_s, **_found_at(line)},
        gain=gain,
    )


def _every_n_steps(line: LineSeen | None) -> str:
    return f"if step % 100 == 0:\n    {_called(line) or '...'}"


def _called(line: LineSeen | None) -> str | None:
    """The code of a line that takes most of a part and only calls something: what it assigns is needed each time."""
    if line is None or line.library or (line.share or 0.0) < MOSTLY:
        return None
    code = _parsed(line.code)
    return line.code if isinstance(code, ast.Expr) and isinstance(code.value, ast.Call) else None


def _trains(line: LineSeen) -> bool:
    return _TRAINS.search(f"{line.code}\n{line.calls}(\n{line.function}(") is not None


@rule("input-in-loop")
def _input_in_loop(case: Case) -> Iterator[Suggestion]:
    """Advise to let workers do what the loop does to a batch before the model gets it."""
    lines = (line for line in _lines(case, "input") if not line.library)
    works = [line for line in lines if not _only_moves(line.code or "", copies=case.on_accelerator)]
    part = min(1.0, sum(line.share or 0.0 for line in works))
    input_s, line = part * _seconds(case, wall_clock.INPUT), _top_of(works, part)
    if not case.workers or input_s < _MATTERS * case.step_s or line is None:
        return
    sending_s = sum(stage.exposed_s_per_batch.estimate for stage in case.held_by if stage.exposed_s_per_batch)
    if case.transport_bound and input_s < sending_s:  # workers may have more to send then
        return
    if part < MOSTLY or _gains_nothing(case):
        return
    gain = _gain_within(case, input_s, input_s / case.workers)
    if gain < WORTH:
        return
    yield Suggestion(
        stage=COMPUTE,
        title="Let the workers do what the loop does to each batch before the model",
        why=f"Between the batch and the model, the loop itself works for {duration(input_s)} of each "
        f"{duration(case.step_s)} step, and nothing else of the training goes on.{_most_of_it(line)}",
        how=f"move what line {line.line} of {PurePath(line.path or '').name} does into the collate function, "
        "DataLoader(..., collate_fn=collate), or into the dataset; on a GPU, copy first and do it there",
        evidence={"input_s_per_step": input_s, "step_s": case.step_s, **_found_at(line)},
        gain=gain,
    )


def _only_moves(code: str, *, copies: bool) -> bool:
    """Whether a line is no work on the batch; one that is no whole statement, and moves something, counts as none.

    Where a move copies, it is taken for what a line that moves the batch, and does more, takes its time for.
    """
    if _NO_INPUT.search(code):
        return True
    line = _parsed(code)
    if copies and line is not None and any(isinstance(n, ast.Call) and _is_moved(n) for n in ast.walk(line)):
        return True
    value = getattr(line, "annotation" if isinstance(line, ast.AnnAssign) else "value", None)  # of a comprehension
    return _MOVES.search(code) is not None and (line is None or (isinstance(value, ast.expr) and _is_moved(value)))


def _is_moved(value: ast.expr) -> bool:
    """Whether it is a name, an attribute or an item, and at most moved; or several of them."""
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


def _gains_nothing(case: Case) -> bool:
    """Whether the job leaves no core for what its workers would do in addition, or its device hides it."""
    if case.on_accelerator and known_s(case.evidence.trace.device.device_busy_s_per_step) > _BUSY * case.device_s:
        return True
    raw, cores = raw_usage(case.evidence), case.evidence.utilisation.cores.usable
    return (
        raw is not None and cores is not None and known_s(raw.cores_main) + known_s(raw.cores_workers) > _BUSY * cores
    )


_ONE_ITERATOR = (
    "def forever(loader):\n    while True:\n        yield from loader\n\n\n"
    "batches = forever(loader)  # once, before the loop\nbatch = next(batches)  # in it"
)


@rule("one-iterator")
def _one_iterator(case: Case) -> Iterator[Suggestion]:
    """Advise to keep the iterator of a loader whose workers start for each batch; what was measured keeps them."""
    restarts, as_it_is_s = known_s(case.evidence.loop.restarts), known_s(case.evidence.loop.restarting_step_s)
    epoch = case.epoch
    # An epoch of a single batch ends with its iterator.
    if not case.workers or restarts < _OFTEN or (epoch is not None and epoch.batches <= 1):
        return
    epochs_s = 0.0 if epoch is None else max(0.0, epoch.gap_s.estimate) / epoch.batches
    gain = as_it_is_s / (case.step_s + epochs_s)
    if gain < WORTH:
        return
    began = f", and {duration(epochs_s)} to begin epochs" if epochs_s else ""
    yield Suggestion(
        title="Keep one iterator of the loader: its workers start again for each batch",
        why=f"Before the measuring, each of {restarts:.0f} passes over the loader started its workers for one batch, "
        f"and took {duration(as_it_is_s)} or more until the next. With workers that go on, as they were measured, a "
        f"step takes {duration(case.step_s)}{began}.",
        how=_ONE_ITERATOR,
        evidence={
            "restarts": restarts, "restarting_step_s": as_it_is_s, "step_s": case.step_s, "epochs_s_per_step": epochs_s,
        },
        gain=gain,
    )  # fmt: skip


@rule("workers-in-step")
def _workers_in_step(case: Case) -> Iterator[Suggestion]:
    """Advise to keep the iterator of a loader that begins again and again between steps of the training."""
    steps = over_0(case.evidence.loop.steps)
    for loader in case.evidence.loop.others if steps is not None else ():
        passes, started_s = known_s(loader.passes), known_s(loader.starting_s) / (steps or 1.0)
        gain = _gain_within(case, started_s)
        if loader.evaluations or not loader.num_workers or passes < _OFTEN or gain < WORTH:
            continue
        if started_s < _MATTERS * case.step_s:
            continue
        every = (steps or 0.0) / passes
        yield Suggestion(
            stage=COMPUTE,
            title=f"Start the workers of the loader over {loader.dataset} once, "
            f"not every {'step' if every < 1.5 else f'{number(every)} steps'}",
            why=f"The loop began {number(passes)} passes over it in {steps:.0f} steps, and its "
            f"{plural(loader.num_workers, 'worker')} began again in each: {duration(started_s)} of each "
            f"{duration(case.step_s)} step.",
            how=_ONE_ITERATOR,
            evidence={
                "passes": passes, "steps": steps, "starting_s_per_step": started_s, "step_s": case.step_s,
                "path": loader.path, "line": loader.line,
            },
            gain=gain,
        )  # fmt: skip


# --- between steps ----------------------------------------------------------------------------------------


@rule("validation")
def _validation(case: Case) -> Iterator[Suggestion]:
    """Advise to keep the workers of a validation that takes much of the wall clock, or to validate less often."""
    whole_s = _whole_s(case)
    evaluated = [one for one in evaluations(case.evidence.loop) if one.is_often_known]
    if not case.wall_clock or not evaluated or not whole_s:
        return
    most = max(evaluated, key=lambda one: one.seconds / one.steps)
    start_s, each_step_s = min(most.seconds, most.starting_s), most.seconds / most.steps
    keeps = start_s >= _MATTERS * most.seconds and start_s / most.steps >= _MATTERS / 2 * whole_s
    if each_step_s < (_MATTERS if keeps else _VALIDATES) * whole_s:
        return
    share = percent(each_step_s / whole_s)
    if most.loader.is_training_set:
        yield _take_from_steps(case, most, share)
    elif keeps:
        yield _keep_workers(case, most, share)
    else:
        yield Suggestion(
            title=f"Validate less often: validating takes {share} of the wall clock",
            why=_evaluated(case, most),
            how="validate half as often; what is promised is the gain of that",
            evidence=_numbers_of(case, most),
            gain=_gain_between(case, each_step_s / 2),
        )


def _keep_workers(case: Case, most: Evaluations, share: str) -> Suggestion:
    again = is_made_again(most.loader)
    comments = ["made once, before the loop"] * again
    comments += ["and validate less often"] * (most.seconds > 2 * most.starting_s)
    start_s = min(most.seconds, most.starting_s)
    started = f", {duration(start_s / most.count)} of it to start and end its workers"
    started += f"; {most.loader.loaders} loaders were made for it" * again
    return Suggestion(
        title=f"Keep the workers of the validation: validating takes {share} of the wall clock",
        why=_evaluated(case, most, started),
        how=f"DataLoader(..., num_workers={most.loader.num_workers}, persistent_workers=True)"
        + (f"  # {', '.join(comments)}" if comments else ""),
        evidence=_numbers_of(case, most),
        gain=_gain_between(case, start_s / most.steps),
    )


def _take_from_steps(case: Case, most: Evaluations, share: str) -> Suggestion:
    """Advise to take the metrics of the training set from the steps of its training."""
    line = _top_of(_lines(case, "evaluating"), 0.0)
    return Suggestion(
        title=f"Take the metrics of the training set from its steps: evaluating it takes {share} of the wall clock",
        why=_evaluated(case, most, _most_of_it(line).replace(" Line", "; line").rstrip(".")),
        how="add up loss and metrics where the loop trains, or evaluate some batches of the training set, or all of it "
        "every N epochs; what is promised is the gain without it",
        evidence=_numbers_of(case, most),
        gain=_gain_between(case, most.seconds / most.steps),
    )


def _numbers_of(case: Case, most: Evaluations) -> dict[str, object]:
    return {
        "evaluations": most.count, "steps": most.steps, "evaluating_s": most.seconds,
        "starting_s": min(most.seconds, most.starting_s), "step_s": case.step_s,
        "path": most.loader.path, "line": most.loader.line,
    }  # fmt: skip


def _evaluated(case: Case, most: Evaluations, more: str = "") -> str:
    """What was seen of the evaluations, as a sentence."""
    place = place_of_loader(most.loader)
    at = f" ({place})" if place else ""
    return (
        f"The loader over {most.loader.dataset}{at} is iterated every {number(most.steps / most.count)} steps, which "
        f"takes {duration(most.seconds / most.count)} each time{more}; a step of the training takes "
        f"{duration(case.step_s)}."
    )


@rule("between-epochs")
def _between_epochs(case: Case) -> Iterator[Suggestion]:
    """Advise to do less often what a script does between two epochs, other than evaluating and saving."""
    between_s, whole_s = _seconds(case, wall_clock.BETWEEN), _whole_s(case)
    seen, line = case.evidence.loop.between, _top_of(_lines(case, "between"), 0.0)
    if not between_s or between_s < _MATTERS * whole_s or line is None:
        return
    batches = over_0(seen.batches) or 1.0
    yield Suggestion(
        title=f"Do less between epochs: it takes {percent(between_s / whole_s)} of the wall clock",
        why=f"Between two epochs of {number(batches)} steps the script takes {duration(between_s * batches)} for what "
        f"is neither an evaluation of a loader nor saving.{_most_of_it(line)}",
        how=f"if epoch % 10 == 0:\n    {_called(line) or '...'}",
        evidence={"between_s_per_step": between_s, "batches": batches, "step_s": case.step_s, **_found_at(line)},
        gain=_gain_between(case, between_s),
    )


@rule("checkpoints")
def _checkpoints(case: Case) -> Iterator[Suggestion]:
    """Advise to save less often where that takes much of the wall clock."""
    saving_s, whole_s = _seconds(case, wall_clock.SAVING), _whole_s(case)
    seen, between = case.evidence.loop, case.evidence.loop.between
    steps, saves = over_0(seen.steps), known_s(seen.saves)
    if not saves:
        steps, saves = known_s(between.ends) * known_s(between.batches), known_s(between.saves)
    if not (steps and saving_s) or saves < (_OFTEN if seen.saves else 1) or saving_s < _MATTERS * whole_s:
        return
    yield Suggestion(
        stage=COMPUTE,
        title=f"Save less often: checkpoints take {percent(saving_s / whole_s)} of the wall clock",
        why=f"The script saved {plural(round(saves), 'file')} in {steps:.0f} steps, and each took "
        f"{duration(saving_s * steps / saves)}: {duration(saving_s)} for each step of {duration(case.step_s)}.",
        how="save every N minutes, or in the background: torch.distributed.checkpoint.async_save",
        evidence={"saves": saves, "steps": steps, "saving_s_per_step": saving_s, "step_s": case.step_s},
        gain=_gain_between(case, saving_s),
    )


# --- switches ---------------------------------------------------------------------------------------------

_OPPOSITE = {"True": "False", "False": "True"}


@rule("switch-left-on")
def _switch_left_on(case: Case) -> Iterator[Suggestion]:
    """Advise to train without what is meant for debugging."""
    yield from _hooks(case)
    found = case.evidence.switches
    if not found:
        return
    off = [re.sub("True|False", lambda on: _OPPOSITE[on[0]], name) for name in found]
    yield Suggestion(
        stage=COMPUTE,
        title=f"Switch off what slows each step down: {names(found)}",
        why=f"{'It was' if len(found) == 1 else f'These {len(found)} were'} on, for debugging or equal results, in all "
        f"steps of {duration(case.step_s)}. What that costs was not measured: train a moment without.",
        how="\n".join(line for line in off if line not in found) or f"train without {names(found)}",
        evidence={"switches": list(found), "step_s": case.step_s},
    )


def _hooks(case: Case) -> Iterator[Suggestion]:
    seen, whole_s = case.evidence.loop, known_s(case.evidence.loop.watched_s)
    share = min(1.0, known_s(seen.hooks_s) / whole_s) if whole_s else 0.0
    if not seen.hooked or share < _MATTERS:
        return
    modules = plural(seen.hooked, "module")
    yield Suggestion(
        stage=COMPUTE,
        title=f"Remove the hooks of {modules}: they take {percent(share)} of each step",
        why=f"Hooks that are no part of the model took {duration(share * whole_s)} of each {duration(whole_s)} step.",
        how="handle = module.register_forward_hook(hook)  # as it is now\nhandle.remove()",
        evidence={"hooked": seen.hooked, "hooks_s_per_step": share * whole_s, "step_s": case.step_s},
        gain=_gain_within(case, share * case.step_s),
    )


RULES = (
    *(_switch_left_on, _after_step, _input_in_loop, _one_iterator, _workers_in_step, _validation, _checkpoints),
    _between_epochs,
)
