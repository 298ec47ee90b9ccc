"""Advice on a script's loop besides its lines: iterators, work between steps, and switches left on."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bottleneck.analysis.advice import wall_clock
from bottleneck.analysis.advice.case import WORTH, Case, Suggestion, rule
from bottleneck.analysis.advice.loop_lines import (
    MATTERS,
    MIN_LEFT,
    call_of,
    found_at,
    gain_within,
    lines_of,
    most_of_it,
    part_s,
    top_of,
    whole_s,
)
from bottleneck.analysis.advice.wall_clock import Evaluations, evaluations, is_made_again, known_s, place_of_loader
from bottleneck.analysis.settings import MOSTLY, over_0
from bottleneck.results.format import duration, names, number, percent, plural
from bottleneck.results.names import COMPUTE

_OFTEN = 2
"""Times that something has been seen at least, for how often it comes to be known."""
_VALIDATES = 0.2
"""Share of the wall clock above which a validation with persistent workers is worth a word: it is intended."""


def _gain_between(case: Case, saved_s: float) -> float:
    """Return the most that the whole training gains without a part of the wall clock."""
    wall_s = whole_s(case)
    return wall_s / max(wall_s - saved_s, MIN_LEFT * wall_s)


# --- iterators --------------------------------------------------------------------------------------------

_ONE_ITERATOR = (
    "def forever(loader):\n    while True:\n        yield from loader\n\n\n"
    "batches = forever(loader)  # once, before the loop\nbatch = next(batches)  # in it"
)


@rule("one-iterator")
def _one_iterator(case: Case) -> Iterator[Suggestion]:
    """Advise to keep the iterator of a loader whose workers start for each batch; the measurement keeps them."""
    restarts, as_it_is_s = known_s(case.evidence.loop.restarts), known_s(case.evidence.loop.restarting_step_s)
    epoch = case.epoch
    # An epoch of a single batch ends with its iterator.
    if not case.workers or restarts < _OFTEN or (epoch is not None and epoch.batches <= 1):
        return
    epochs_s = 0.0 if epoch is None else max(0.0, epoch.gap_s.estimate) / epoch.batches
    gain = as_it_is_s / (case.step_s + epochs_s)
    if gain < WORTH:
        return
    began = f", and {duration(epochs_s)} to start epochs" if epochs_s else ""
    yield Suggestion(
        title="Keep one iterator of the loader: its workers restart for each batch",
        why=f"Before the measuring, each of {restarts:.0f} passes over the loader started its workers for one batch, "
        f"and took {duration(as_it_is_s)} or more until the next. With workers that keep running, as measured, a "
        f"step takes {duration(case.step_s)}{began}.",
        how=_ONE_ITERATOR,
        evidence={
            "restarts": restarts,
            "restarting_step_s": as_it_is_s,
            "step_s": case.step_s,
            "epochs_s_per_step": epochs_s,
        },
        gain=gain,
    )


@rule("workers-in-step")
def _workers_in_step(case: Case) -> Iterator[Suggestion]:
    """Advise to keep the iterator of a loader that begins again and again between steps of the training."""
    steps = over_0(case.evidence.loop.steps)
    for loader in case.evidence.loop.others if steps is not None else ():
        passes, started_s = known_s(loader.passes), known_s(loader.starting_s) / (steps or 1.0)
        gain = gain_within(case, started_s)
        if loader.evaluations or not loader.num_workers or passes < _OFTEN or gain < WORTH:
            continue
        if started_s < MATTERS * case.step_s:
            continue
        every = (steps or 0.0) / passes
        yield Suggestion(
            stage=COMPUTE,
            title=f"Start the workers of the loader over {loader.dataset} once, "
            f"not every {'step' if every < 1.5 else f'{number(every)} steps'}",
            why=f"The loop started {number(passes)} passes over it in {steps:.0f} steps, and its "
            f"{plural(loader.num_workers, 'worker')} restarted in each: {duration(started_s)} of each "
            f"{duration(case.step_s)} step.",
            how=_ONE_ITERATOR,
            evidence={
                "passes": passes,
                "steps": steps,
                "starting_s_per_step": started_s,
                "step_s": case.step_s,
                "path": loader.path,
                "line": loader.line,
            },
            gain=gain,
        )


# --- between steps ----------------------------------------------------------------------------------------


@rule("validation")
def _validation(case: Case) -> Iterator[Suggestion]:
    """Advise to keep the workers of a validation that takes much of the wall clock, or to validate less often."""
    wall_s = whole_s(case)
    evaluated = [one for one in evaluations(case.evidence.loop) if one.is_often_known]
    if not case.wall_clock or not evaluated or not wall_s:
        return
    most = max(evaluated, key=lambda one: one.seconds / one.steps)
    start_s, each_step_s = min(most.seconds, most.starting_s), most.seconds / most.steps
    keeps = start_s >= MATTERS * most.seconds and start_s / most.steps >= MATTERS / 2 * wall_s
    if each_step_s < (MATTERS if keeps else _VALIDATES) * wall_s:
        return
    share = percent(each_step_s / wall_s)
    if most.loader.is_training_set:
        yield _take_from_steps(case, most, share)
    elif keeps:
        yield _keep_workers(case, most, share)
    else:
        yield Suggestion(
            title=f"Validate less often: validating takes {share} of the wall clock",
            why=_evaluated(case, most),
            how="validate half as often; the stated gain is for that",
            evidence=_numbers_of(case, most),
            gain=_gain_between(case, each_step_s / 2),
        )


def _keep_workers(case: Case, most: Evaluations, share: str) -> Suggestion:
    again = is_made_again(most.loader)
    comments = ["made once, before the loop"] * again
    comments += ["and validate less often"] * (most.seconds > 2 * most.starting_s)
    start_s = min(most.seconds, most.starting_s)
    started = f", {duration(start_s / most.count)} of it to start and stop its workers"
    started += f"; {most.loader.loaders} loaders were made for it" * again
    return Suggestion(
        title=f"Keep the validation workers: validating takes {share} of the wall clock",
        why=_evaluated(case, most, started),
        how=f"DataLoader(..., num_workers={most.loader.num_workers}, persistent_workers=True)"
        + (f"  # {', '.join(comments)}" if comments else ""),
        evidence=_numbers_of(case, most),
        gain=_gain_between(case, start_s / most.steps),
    )


def _take_from_steps(case: Case, most: Evaluations, share: str) -> Suggestion:
    """Advise to take the metrics of the training set from the steps of its training."""
    line = top_of(lines_of(case, "evaluating"), 0.0)
    return Suggestion(
        title=f"Take the metrics of the training set from its steps: evaluating it takes {share} of the wall clock",
        why=_evaluated(case, most, most_of_it(line).replace(" Line", "; line").rstrip(".")),
        how="accumulate loss and metrics in the training loop, or evaluate some batches of the training set, or all "
        "of it every N epochs; the stated gain is for leaving it out",
        evidence=_numbers_of(case, most),
        gain=_gain_between(case, most.seconds / most.steps),
    )


def _numbers_of(case: Case, most: Evaluations) -> dict[str, object]:
    return {
        "evaluations": most.count,
        "steps": most.steps,
        "evaluating_s": most.seconds,
        "starting_s": min(most.seconds, most.starting_s),
        "step_s": case.step_s,
        "path": most.loader.path,
        "line": most.loader.line,
    }


def _evaluated(case: Case, most: Evaluations, more: str = "") -> str:
    """Return the observations of the evaluations, as a sentence."""
    place = place_of_loader(most.loader)
    at = f" ({place})" if place else ""
    return (
        f"The loader over {most.loader.dataset}{at} is iterated every {number(most.steps / most.count)} steps, which "
        f"takes {duration(most.seconds / most.count)} each time{more}; a training step takes "
        f"{duration(case.step_s)}."
    )


@rule("between-epochs")
def _between_epochs(case: Case) -> Iterator[Suggestion]:
    """Advise to reduce a script's work between two epochs, other than evaluating and saving."""
    between_s, wall_s = part_s(case, wall_clock.BETWEEN), whole_s(case)
    seen, line = case.evidence.loop.between, top_of(lines_of(case, "between"), 0.0)
    if not between_s or between_s < MATTERS * wall_s or line is None:
        return
    batches = over_0(seen.batches) or 1.0
    yield Suggestion(
        title=f"Do less between epochs: it takes {percent(between_s / wall_s)} of the wall clock",
        why=f"Between two epochs of {number(batches)} steps the script spends {duration(between_s * batches)} on work "
        f"that is neither evaluating a loader nor saving.{most_of_it(line)}",
        how=f"if epoch % 10 == 0:\n    {call_of(line) if (line.share or 0.0) >= MOSTLY else '...'}",
        evidence={"between_s_per_step": between_s, "batches": batches, "step_s": case.step_s, **found_at(line)},
        gain=_gain_between(case, between_s),
    )


@rule("checkpoints")
def _checkpoints(case: Case) -> Iterator[Suggestion]:
    """Advise to save less often if that takes much of the wall clock."""
    saving_s, wall_s = part_s(case, wall_clock.SAVING), whole_s(case)
    seen, between = case.evidence.loop, case.evidence.loop.between
    steps, saves = over_0(seen.steps), known_s(seen.saves)
    if not saves:
        steps, saves = known_s(between.ends) * known_s(between.batches), known_s(between.saves)
    if not (steps and saving_s) or saves < (_OFTEN if seen.saves else 1) or saving_s < MATTERS * wall_s:
        return
    yield Suggestion(
        stage=COMPUTE,
        title=f"Save less often: checkpoints take {percent(saving_s / wall_s)} of the wall clock",
        why=f"The script saved {plural(round(saves), 'file')} in {steps:.0f} steps, and each took "
        f"{duration(saving_s * steps / saves)}: {duration(saving_s)} for each step of {duration(case.step_s)}.",
        how="save every N minutes, or in the background: torch.distributed.checkpoint.async_save",
        evidence={"saves": saves, "steps": steps, "saving_s_per_step": saving_s, "step_s": case.step_s},
        gain=_gain_between(case, saving_s),
    )


# --- switches ---------------------------------------------------------------------------------------------

_OPPOSITE = {"True": "False", "False": "True"}
_ELSEWHERE = {
    "torch.autograd.set_detect_anomaly(False)": "  # in Lightning: Trainer(detect_anomaly=False)",
    "torch.use_deterministic_algorithms(False)": "  # in Lightning: Trainer(deterministic=False)",
}
"""Remarks on switches that a framework sets."""


@rule("switch-left-on")
def _switch_left_on(case: Case) -> Iterator[Suggestion]:
    """Advise to train without settings that are meant for debugging."""
    yield from _hooks(case)
    found = case.evidence.switches
    if not found:
        return
    off = [re.sub("True|False", lambda on: _OPPOSITE[on[0]], name) for name in found]
    yield Suggestion(
        stage=COMPUTE,
        title=f"Switch off what slows each step down: {names(found)}",
        why=f"{'It was' if len(found) == 1 else f'These {len(found)} were'} on, for debugging or reproducibility, in "
        f"all steps of {duration(case.step_s)}. The cost was not measured: train briefly without.",
        how="\n".join(line + _ELSEWHERE.get(line, "") for line in off if line not in found)
        or f"train without {names(found)}",
        evidence={"switches": list(found), "step_s": case.step_s},
    )


def _hooks(case: Case) -> Iterator[Suggestion]:
    seen, wall_s = case.evidence.loop, known_s(case.evidence.loop.watched_s)
    share = min(1.0, known_s(seen.hooks_s) / wall_s) if wall_s else 0.0
    if not seen.hooked or share < MATTERS:
        return
    modules = plural(seen.hooked, "module")
    yield Suggestion(
        stage=COMPUTE,
        title=f"Remove the hooks of {modules}: they take {percent(share)} of each step",
        why=f"Hooks that are not part of the model took {duration(share * wall_s)} of each {duration(wall_s)} step.",
        how="handle = module.register_forward_hook(hook)  # the current code\nhandle.remove()",
        evidence={"hooked": seen.hooked, "hooks_s_per_step": share * wall_s, "step_s": case.step_s},
        gain=gain_within(case, share * case.step_s),
    )


RULES = (_switch_left_on, _one_iterator, _workers_in_step, _validation, _checkpoints, _between_epochs)
