"""Reports of tunings: short in a terminal, honest about alterations, and at the end the limit of the job now."""

from dataclasses import replace

import pytest

from bottleneck.reports.render import for_terminal, render
from bottleneck.results.records import Advice, Interval, Warning
from tests.support.tuning_factory import make_after, make_before, make_ladder, make_tuning, make_tuning_without_a_gain

FORMS = ("text", "markdown", "html")


def words(report: str) -> str:
    return " ".join(report.split())


def test_a_terminal_has_some_twenty_lines_and_ends_with_what_holds_the_tuned_job():
    lines = render(make_tuning(), "text").splitlines()
    assert len(lines) <= 40  # with all that there can be: three steps up, a time to compile, a warning
    assert all(len(line) <= 80 for line in lines)
    last = "\n".join(lines).rstrip().split("\n\n")[-1]
    assert last.startswith("COMPUTE-BOUND  the tuned job\n1,702 samples/s now")
    assert "The train step takes 9.40 ms of each 9.40 ms step" in words(last)
    assert for_terminal(make_tuning(), verbose=True).plain().rstrip().endswith(last)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_has_the_ladder_what_was_promised_and_what_it_may_alter(form):
    said = words(render(make_tuning(), form))
    for text in ("up to 2.6x", "what is learned: autocast", "memory: pin_memory", "pays off after"):
        assert text in said, text
    assert "1,702" in said
    assert "train.py:build" in said


def test_a_promise_without_a_bound_has_its_interval_and_that_of_a_free_stage_is_a_bound():
    free = Advice("cheaper-load", "load", "", "", "", {}, Interval(1.5, 1.4, 1.6), "measured")
    ladder = make_ladder()
    for predicted, before, shown in (
        (Interval(1.5, 1.4, 1.6), make_before(), "1.50x (1.40–1.60)"),
        (free.gain, replace(make_before(), advice=(free,)), "up to 1.50x"),
        (free.gain, None, "1.50x (1.40–1.60)"),
    ):
        rungs = (ladder[0], replace(ladder[1], predicted=predicted))
        assert shown in render(make_tuning(ladder=rungs, trials=(), before=before), "markdown")


def test_what_the_tuning_has_tried_is_not_advised_again():
    for form in FORMS:
        said = render(make_tuning(), form)
        assert "Make the train step faster" in said
        assert "Use more workers" not in said
    untried = tuple(trial for trial in make_tuning().trials if "num_workers" not in trial.changes)
    assert "Use more workers" in render(make_tuning(trials=untried), "html")


def test_a_pull_request_says_in_its_heading_what_changed():
    tuned, unchanged = render(make_tuning(), "markdown"), render(make_tuning_without_a_gain(), "markdown")
    assert tuned.startswith("### 🟢 train.py:build is 2.6x faster (648 → 1,702 samples/s)\n")
    assert unchanged.startswith("### ⚪ train.py:build: no change pays (648 samples/s)\n")
    assert "No change makes this job clearly more than 2 % faster" in unchanged
    assert "```python\nDataLoader(..., num_workers=6)\n" in tuned
    assert "```python" not in unchanged.partition("<details>")[0]


@pytest.mark.parametrize("form", FORMS)
def test_a_tuning_that_ended_early_says_so_and_shows_what_there_was(form):
    changes = {"sentence": "The tuning ended early; kept so far: num_workers=4.", "ladder": (), "gain": None}
    ended = make_tuning(**changes, lines=(), after=None, warnings=())
    said = words(render(ended, form))
    assert "The tuning ended early; kept so far: num\\_workers=4." in said.replace("num_workers=4.", "num\\_workers=4.")
    assert "prefetch_factor=4" in said
    assert "the tuned job" not in said
    assert "What limits the job now" not in said
    render(make_tuning(**changes, before=None, after=None, trials=()), form)


def test_a_terminal_shows_the_first_warnings_and_pages_all():
    many = make_tuning(warnings=tuple(Warning("w", f"Doubt {number}.") for number in range(5)))
    assert render(many, "text").count("Doubt") == 2
    assert render(many, "html").count("Doubt") == 5
    assert for_terminal(many, verbose=True).plain().count("Doubt") == 5


def test_what_holds_the_job_now_needs_no_number():
    after = replace(make_after(), experiments=(), stages=())
    for form in FORMS:
        assert "The train step limits this job" in words(render(make_tuning(after=after), form))
