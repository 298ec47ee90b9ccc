"""The wall clock of a script; needless work comes before work that could be faster."""

from dataclasses import replace

import pytest

from bottleneck.analysis.analyse import analyse
from bottleneck.analysis.edits.edits import edit_of, place_of
from bottleneck.reports.render import FORMATS, render
from tests.analysis.rule_case import advice_of, result_of
from tests.analysis.rule_cases import computing
from tests.analysis.rule_cases.looping import (
    AGAIN,
    COPYING,
    EMA,
    ENDS,
    LOGGING,
    PAIRED,
    PLOTTING,
    READING,
    STEPPING,
    VALIDATION,
    looping,
)
from tests.analysis.simulated import DEVICE_BOUND, measure


def parts(job):
    return {part.name: part for part in result_of(job).evidence.wall_clock}


def test_a_step_divides_like_those_of_its_loop_and_what_comes_between_is_added():
    found = parts(looping({"others": [VALIDATION], "input_s": 0.006, "saves": 4, "saving_s": 0.2}))
    milliseconds = {name: round(part.s_per_step * 1e3, 1) for name, part in found.items()}
    assert milliseconds == {
        "waiting for batches": 0.3,
        "input work in the loop": 6.0,
        "forward, backward and optimizer": 23.1,
        "after the optimizer's step": 0.5,  # of a thirtieth, less what it saves
        "checkpoints": 0.5,
        "validation": 5.0,
        "starting validation workers": 10.0,
    }
    assert sum(part.share for part in found.values()) == pytest.approx(1.0)
    assert found["validation"].place == "train.py:12"


def test_a_second_loader_of_the_training_is_a_part_of_its_own():
    found = parts(looping({"others": [PAIRED], "input_s": 0.012}))
    assert found["other loaders"].s_per_step == pytest.approx(4.5 / 400)
    assert found["input work in the loop"].s_per_step == pytest.approx(0.012 - 4.5 / 400, rel=0.05)
    begun_before = parts(looping({"other_loaders_s": 0.011, "input_s": 0.012}))
    assert begun_before["other loaders"].s_per_step == 0.011


def test_on_a_device_waiting_for_it_is_the_step():
    after = {"after_optimizer_s": 0.02, "after_device_s": 0.003}
    assert parts(looping(after, device="cuda:0"))["after the optimizer's step"].share == pytest.approx(0.1, abs=0.01)


def test_what_came_between_real_epochs_counts_for_each_of_their_steps():
    after = {**ENDS, "seconds": 2.28, "others": [AGAIN], "saves": 1, "saving_s": 0.32, "each_epoch_share": 0.5}
    found = parts(looping({"between": after, "lines": [PLOTTING]}))
    milliseconds = {name: round(part.s_per_step * 1e3, 2) for name, part in found.items()}
    assert milliseconds["validation"] == 15.46  # of 64 steps, without the start of workers that stay
    assert milliseconds["checkpoints"] == 2.5  # in every second epoch
    assert milliseconds["between epochs"] == 7.5
    assert found["between epochs"].place == "train.py:40"
    assert sum(part.share for part in found.values()) == pytest.approx(1.0)


def test_an_evaluation_that_the_fed_loop_makes_as_well_counts_once():
    fed = {**AGAIN, "evaluations": 4, "passes": 4, "evaluating_s": 4.0, "starting_s": 0.0}
    found = parts(looping({"others": [fed], "saves": 4, "saving_s": 0.4, "between": {**ENDS, "others": [AGAIN]}}))
    assert found["validation"].s_per_step == pytest.approx(4.0 / 400)
    assert found["checkpoints"].s_per_step == pytest.approx(0.4 / 400)


def test_the_metrics_of_the_training_set_are_taken_from_its_steps():
    evaluates = {**AGAIN, "evaluating_s": 1.92}
    line = {**PLOTTING, "stage": "evaluating", "line": 45, "code": "right += count(model, rows)", "share": 0.7}
    job = looping({"between": {**ENDS, "seconds": 1.92, "others": [evaluates]}, "lines": [line]})
    first = result_of(job).advice[0]
    assert (first.id, first.gain.estimate) == ("validation", pytest.approx(2.0, abs=0.03))
    assert "evaluating it takes 50 % of the wall clock" in first.title
    assert "Line 45 of train.py takes 70 % of that" in first.why.replace("line 45", "Line 45")
    elsewhere = {**evaluates, "is_training_set": None}
    other = result_of(looping({"between": {**ENDS, "seconds": 1.92, "others": [elsewhere]}})).advice[0]
    assert (other.id, other.gain.estimate) == ("validation", pytest.approx(4 / 3, abs=0.03))


@pytest.mark.parametrize("form", FORMATS)
def test_a_device_that_limits_the_steps_is_no_word_about_the_rest_of_the_wall_clock(form):
    """Guards: 'leave the input alone' was the last word when evaluations took 45 % of the wall clock."""
    job = looping({"between": {**ENDS, "seconds": 1.92, "others": [{**AGAIN, "evaluating_s": 1.92}]}})
    text = " ".join(render(result_of(job), form).split())
    assert "50 % of the wall clock" in text
    if form != "json":
        assert "Where the wall clock goes: validation 50 %" in text
        assert "steps are only 50 % of the wall clock" in text or "Within its steps, 50 % of the wall clock," in text
    healthy = " ".join(render(result_of(looping({"between": ENDS | {"seconds": 0.01}})), form).split())
    assert "steps are only" not in healthy


@pytest.mark.parametrize("form", ["text", "markdown", "html"])
@pytest.mark.parametrize(
    ("between", "said"),
    [
        ({"ends": 0, "path": "train.py", "line": 47, "skip_steps": 668}, "was not seen"),
        ({"ends": 0, "path": "train.py", "line": 47}, "was not seen"),
        ({"ends": 0, "skip_steps": 668}, ""),
        ({"ends": 1, "batches": 667, "seconds": 0.1}, ""),
        ({}, ""),
    ],
)
def test_what_follows_an_epoch_and_was_not_seen_is_said_with_how_to_see_it(between, said, form):
    text = " ".join(render(result_of(looping({"between": between})), form).split())
    assert ("was not seen" in text) == bool(said)
    if said:
        assert "from line 47 of train.py on" in text
        assert ("--skip-steps 668" if "skip_steps" in between else "--skip-steps") in text


def test_a_loop_that_ends_its_epochs_by_its_own_count_has_shown_what_follows():
    seen = {"between": {"ends": 0, "path": "train.py", "line": 47, "skip_steps": 668}, "others": [VALIDATION]}
    assert "was not seen" not in render(result_of(looping(seen)), "text")


def test_of_a_job_that_is_no_script_nothing_is_said():
    assert not parts(looping({"steps": None}))


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_says_where_it_goes(form):
    text = " ".join(render(result_of(looping({"others": [VALIDATION]})), form).split())
    assert ("wall_clock" if form == "json" else "Where the wall clock goes: forward") in text
    assert "starting validation workers" in text
    healthy = render(result_of(looping()), form)
    assert "Where the wall clock goes: " not in healthy


def test_logging_comes_before_a_faster_step_with_its_line_and_the_edit():
    slow = computing.traced(computing._ON_CPU, computing._CPU_MODEL, device="cpu").evidence
    logs = {"until_optimizer_s": 0.008, "after_optimizer_s": 0.02, "lines": [LOGGING]}
    result = result_of(replace(looping(logs, **slow)))
    assert [item.id for item in result.advice][:2] == ["loop-line", "mixed-precision"]
    first = result.advice[0]
    assert place_of(first, result.evidence) == "train.py:31"
    edit = edit_of(first, result.pipeline, result.evidence)
    assert edit.lines == "if step % 100 == 0:\n    writer.add_histogram(name, weight)"
    assert first.gain.low == 1.0  # at most
    collects = result_of(looping({**logs, "lines": [{**LOGGING, "code": "gc.collect()"}]}))
    assert collects.advice[0].title.startswith("Collect garbage every N steps")


def test_the_loop_is_advised_on_where_the_numbers_of_the_ladder_contradict_each_other():
    logs = {"until_optimizer_s": 0.008, "after_optimizer_s": 0.02, "lines": [LOGGING]}
    slow = measure(looping(logs, replace(DEVICE_BOUND, coupled={**DEVICE_BOUND.coupled, "raw": 0.02})), noise=0.001)
    result = analyse(slow)
    assert result.warnings[0].id == "contradiction"
    assert [item.id for item in result.advice] == ["loop-line"]


@pytest.mark.parametrize(
    ("code", "share", "shown"),
    [
        ("for weight in weights:", 0.6, "..."),
        ("loss = log(", 0.6, "..."),
        ("return np.histogram(values, 64)", 0.6, "..."),
        ("losses.append(loss)", 0.3, "..."),
        ("losses.append(loss)", 0.6, "losses.append(loss)"),
    ],
)
def test_only_a_whole_line_that_takes_most_is_an_edit(code, share, shown):
    line = {**LOGGING, "code": code, "share": share, "calls": None}
    logs = {"until_optimizer_s": 0.008, "after_optimizer_s": 0.02, "lines": [line]}
    assert result_of(looping(logs)).advice[0].how == f"if step % 100 == 0:\n    {shown}"


def test_what_is_saved_is_said_once():
    saves = {"after_optimizer_s": 0.02, "saves": 20, "saving_s": 4.0}
    saves["lines"] = [{**LOGGING, "code": "torch.save(model, path)"}]
    assert [item.id for item in result_of(looping(saves)).advice if item.id in ("after-step", "checkpoints")] == [
        "checkpoints"
    ]


def test_workers_that_stay_are_not_to_be_kept_again():
    kept = result_of(looping({"others": [{**VALIDATION, "persistent_workers": True}]})).advice[0]
    ended = result_of(looping({"others": [VALIDATION]})).advice[0]
    assert "persistent_workers=True" in ended.how
    assert "persistent_workers" not in kept.how
    assert ended.gain.estimate == pytest.approx(45.3 / 35.3, rel=0.02)


@pytest.mark.parametrize("loaders", [1, 20])
@pytest.mark.parametrize("stays", [False, True])
def test_a_loader_that_is_made_for_each_pass_is_to_be_made_once(loaders, stays):
    again = {**VALIDATION, "loaders": loaders, "persistent_workers": stays}
    how = result_of(looping({"others": [again]})).advice[0].how
    assert ("made once, before the loop" in how) == (loaders > 1)
    assert ("persistent_workers=True" in how) == (loaders > 1 or not stays)


def test_what_trains_and_what_has_its_own_advice_is_no_part_of_what_is_done_less_often():
    lines = [{**EMA, "share": 0.3}, {**LOGGING, "share": 0.2}, {**STEPPING, "share": 0.5}]
    given = advice_of(looping({"until_optimizer_s": 0.008, "after_optimizer_s": 0.02, "lines": lines}))
    assert given["after-step"].evidence["after_s_per_step"] == pytest.approx(0.5 * 0.02, rel=0.05)
    assert given["after-step"].evidence["line"] == STEPPING["line"]


def test_no_title_claims_logging_that_was_not_seen():
    # Guards: a script that averaged its weights, and another that collected garbage, were told to log every N steps.
    after = {"until_optimizer_s": 0.008, "after_optimizer_s": 0.02}
    for lines in ([], [STEPPING], [EMA], [{**STEPPING, "code": "gc.collect()"}]):
        told = " ".join(item.title + item.why for item in result_of(looping({**after, "lines": lines})).advice)
        assert "log" not in told.lower()
    (logs, *_) = result_of(looping({**after, "lines": [LOGGING]})).advice
    assert logs.title.startswith("Log every N steps: line 31 of train.py takes")


def test_lines_of_one_remedy_are_told_together_in_whichever_part_they_stand():
    # Guards: six copies a step, the first of them before the model's first call: the five others were not counted.
    lines = [{**COPYING, "stage": "input", "share": 1.0}, {**COPYING, "share": 0.5}]
    seen = {"watched_s": 0.03, "input_s": 0.005, "lines": lines}
    (line, *others) = [item for item in result_of(looping(seen)).advice if item.id in ("loop-line", "input-in-loop")]
    assert not others
    assert line.title == "Line 25 of train.py takes 56 % of each step: copy.deepcopy(hops)"
    assert line.evidence["s_per_step"] == pytest.approx(0.005 + 0.5 * 0.024, rel=0.05)
    assert "before the loop" in line.how
    assert line.gain.estimate == pytest.approx(1 / (1 - 0.56), rel=0.05)


def test_a_function_that_averages_weights_is_told_as_one():
    # Guards: of its lines, that which reads the weights was said to be logging.
    lines = [{**EMA, "share": 0.3}, {**READING, "share": 0.3}, {**STEPPING, "share": 0.1}]
    after = {"until_optimizer_s": 0.008, "after_optimizer_s": 0.02, "lines": lines}
    (first, *_) = result_of(looping(after)).advice
    assert first.title.startswith("Average the weights in one call, or every N steps: lines 6 and 8 of train.py")
    assert "_foreach_lerp_" in first.how
    assert first.evidence["s_per_step"] == pytest.approx(0.6 * 0.02, rel=0.05)
