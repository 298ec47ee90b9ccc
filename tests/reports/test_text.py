"""The report for a terminal: fits, leads with the answer, and colours only where colours are wanted."""

from __future__ import annotations

import io
import unicodedata
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from bottleneck.reports.render import for_terminal, render
from bottleneck.results.format import duration
from bottleneck.results.loop import BetweenEpochs
from bottleneck.results.records import Interval, Warning
from tests.support.result_strategies import RESULTS
from tests.support.results_factory import make_advice, make_experiments, make_result, make_stages


def render_short(result, width=80):
    return for_terminal(result).plain(width)


def render_text(result, width=80):
    """With all tables."""
    return for_terminal(result, verbose=True).plain(width)


def renamed(name: str):
    """A result whose augmentation, its experiment included, is called `name`."""
    stages = tuple(
        replace(s, name=name if s.name == "augment" else s.name, outer=name if s.name == "augment" else s.outer)
        for s in make_stages()
    )
    experiments = tuple(replace(e, name=name if e.name == "before_augment" else e.name) for e in make_experiments())
    return make_result(stages=stages, experiments=experiments)


@pytest.mark.parametrize("name", ["a" * 200, "数据增强" * 30, "🐌" * 50, "cafe\u0301 " * 40, "word " * 60])
def test_long_and_wide_names_fit_into_80_columns(name):
    report = render_text(renamed(name))
    assert max(cell_len(line) for line in report.splitlines()) <= 80
    assert "13.0 ms" in report
    assert "also costs time" in report


def test_the_short_report_is_a_screen_that_says_what_to_do():
    result = make_result()
    job = {**result.pipeline, "target": "train.py:build", "commit": "1a2b3c4"}
    report = render_short(replace(result, pipeline=job))
    lines = report.splitlines()
    assert len(lines) <= 26
    assert lines[:2] == ["INPUT-BOUND  train.py:build", "commit 1a2b3c4, NVIDIA H100, batch 16, 2 workers"]
    assert "648 samples/s now, 1,702 if data came at once: the input costs 62 % (60–64 %)." in lines
    bars = [line for line in lines if line.startswith("  ") and "█" in line]
    assert len(bars) <= 5
    assert [line for line in bars if "←" in line] == [line for line in bars if line.startswith("  augment")]
    assert "← bottleneck: 2.49x (2.44–2.54) without it" in report
    assert "Fix 1  Use more workers, up to 2.6x." in lines
    assert "       DataLoader(..., num_workers=6)" in lines
    assert lines.index("Fix 1  Use more workers, up to 2.6x.") > max(lines.index(bar) for bar in bars)
    assert lines[-1] == "Measured in 47 s, 6 rounds. All tables and intervals: --verbose."


def test_a_bottleneck_that_is_not_the_longest_bar_is_explained():
    result = make_result()
    weak = tuple(
        replace(s, gain_if_free=Interval(1.05, 1.02, 1.08)) if s.name == "augment" else s for s in result.stages
    )
    held = replace(result, stages=weak, verdict=replace(result.verdict, bottleneck="load", contributors=()))
    told = "The bottleneck is load all the same: the job gains more without it than without augment."
    assert told in " ".join(render_short(held).split())
    assert "all the same" not in render_short(result)


@pytest.mark.parametrize("written", [render_short, lambda result: render(result, "markdown")], ids=["text", "markdown"])
def test_a_gain_that_is_larger_than_the_part_of_the_step_is_explained(written):
    result = make_result()
    explained = "augment costs the loader 20.7 ms a batch, and the train step hides some of it: without augment,"
    assert explained in " ".join(written(result).split())
    in_keeping = [replace(s, gain_if_free=Interval(2.0, 1.9, 2.1)) if s.name == "augment" else s for s in result.stages]
    assert "hides some of it" not in written(replace(result, stages=tuple(in_keeping)))
    assert "hides some of it" not in written(replace(result, pipeline={**result.pipeline, "num_workers": 0}))


def test_a_gain_that_the_bars_do_not_give_is_explained():
    result = make_result()
    told = "Stages overlap: the gain without augment is measured; it does not follow from its part of the step."

    def gaining(gain):
        weak = [replace(s, gain_if_free=Interval(gain, gain - 0.1, gain + 0.1)) for s in result.stages[-2:-1]]
        return " ".join(render_short(replace(result, stages=(*result.stages[:-2], *weak, result.stages[-1]))).split())

    assert told in gaining(1.5)  # 24.7 of 11.7 ms is 2.1x
    assert told not in gaining(2.1)


@pytest.mark.parametrize("written", [render_short, render_text, lambda result: render(result, "markdown")])
def test_every_format_gives_the_same_time_of_a_stage(written):
    # Guards: 16.0 ms on the terminal, and < 23.7 ms of a step of 23.7 ms in a pull request.
    result = make_result()
    rough = {"augment": Interval(0.012, -0.001, 0.022), "load": Interval(0.0027, -0.004, 0.0085)}
    stages = [replace(s, exposed_s_per_batch=rough.get(s.name, s.exposed_s_per_batch)) for s in result.stages]
    report = written(replace(result, step=(), stages=tuple(stages))).replace("&lt;", "<").replace("`", "")
    rows = [" ".join(line.replace("|", " ").split()) for line in report.splitlines()]
    assert any(row.startswith("augment 12.2 ms") for row in rows)
    assert any(row.startswith("load < 8.50 ms") for row in rows)
    assert not any(row.startswith(("augment <", "load 2")) for row in rows)
    assert "at most 8.50 ms" not in report


def test_on_a_cpu_the_cost_of_the_input_is_told_without_a_named_stage_too():
    found = make_result(environment={"device": "cpu"})
    unnamed = replace(found, verdict=replace(found.verdict, bottleneck=None, contributors=()))
    told = "The input costs 62 % (60–64 %) of the throughput."
    assert told in " ".join(render_short(unnamed).split())
    assert told not in " ".join(render_short(replace(unnamed, environment={"device": "cuda:0"})).split())


def test_the_steps_that_show_the_end_of_an_epoch_are_told_with_their_time():
    # Guards: --skip-steps 401 of a script whose steps take 1.2 s.
    found = make_result()
    between = BetweenEpochs(ends=0, path="train.py", line=198, skip_steps=40_000)
    evidence = replace(found.evidence, loop=replace(found.evidence.loop, between=between))
    raw = found.coupled("raw")
    told = f"--skip-steps 40,000 lets the first epoch, about {duration(40_000 * raw.seconds_per_batch)}, end before"
    assert told in " ".join(render_short(replace(found, evidence=evidence)).split())


def test_on_a_cpu_the_bottleneck_comes_first_and_what_the_input_costs_with_it():
    report = " ".join(render_short(make_result(environment={"device": "cpu", "device_name": "EPYC"})).split())
    assert "EPYC (CPU)" in report
    speed = (
        "648 samples/s now, 1,702 if the input took no time and no core: it costs 62 % (60–64 %) on the CPU, which "
        "model and workers share."
    )
    assert speed in report
    named = "Bottleneck: augment, 20.7 ms of the 24.3 ms that the loader alone takes for a batch. Also: load."
    assert report.index(named) < report.index(speed)
    alone = make_result(environment={"device": "cpu"})
    report = render_short(replace(alone, pipeline={**alone.pipeline, "num_workers": 0}))
    assert "1,702 if the input took no time: it costs 62 %" in " ".join(report.split())


def test_facts_are_told_apart_from_fixes_and_prose_is_in_no_box():
    advice = tuple(
        replace(make_advice()[0], id=id, title=title, how=how)
        for id, title, how in (("workers-cannot-help", "Cores are full", "less work"), ("cheaper", "Think", "do less"))
    )
    lines = render_short(make_result(advice=advice)).splitlines()
    assert "Cores are full." in lines
    assert "Fix 1  Think, up to 2.6x. How: do less." in lines
    assert "less work" not in " ".join(lines)


def test_what_is_not_simple_is_told_in_the_words_of_the_verdict():
    result = make_result()
    undecided = replace(result.verdict, state="undecided", bottleneck=None, sentence="Undecided: it says why.")
    assert "Undecided: it says why." in render_short(make_result(verdict=undecided)).splitlines()
    epoch = replace(result.verdict, judged_by="epoch_efficiency", sentence="Between epochs it stands.")
    assert "Between epochs it stands." in render_short(make_result(verdict=epoch)).splitlines()


def test_only_the_first_pieces_of_advice_are_shown_and_the_others_counted():
    advice = tuple(replace(make_advice()[0], title=f"Number {index}") for index in range(7))
    report = render_short(make_result(advice=advice, warnings=(Warning("one", "Once."),) * 3))
    assert "Number 2" in report
    assert "Number 3" not in report
    assert " 4 more fixes, 1 more warning, tables and intervals: --verbose." in " ".join(report.split())
    assert "more" not in render_short(make_result(advice=advice[:3], warnings=())).splitlines()[-1]
    assert "Number 6" in render_text(make_result(advice=advice))


def test_colours_are_for_terminals_only(monkeypatch):
    assert "\x1b[" not in render_text(make_result())
    assert "\x1b[" in printed(make_result(), force_terminal=True, color_system="standard")
    monkeypatch.setenv("NO_COLOR", "1")
    uncoloured = printed(make_result(), force_terminal=True)
    assert not any(f"\x1b[3{colour}m" in uncoloured for colour in range(8))


@settings(max_examples=60, deadline=None)
@given(RESULTS, st.integers(1, 120), st.booleans())
def test_any_result_fits_any_width(result, width, verbose):
    for line in for_terminal(result, verbose=verbose).plain(width).split("\n"):
        assert cell_len(line) <= width
        assert line == line.rstrip()
        assert not {unicodedata.category(character) for character in line} & {"Cc", "Cf", "Cs"}


def printed(result, *, width=80, **options) -> str:
    stream = io.StringIO()
    Console(file=stream, width=width, **options).print(for_terminal(result))
    return stream.getvalue()
