"""The report for a terminal: fits, leads with the answer, and colours only where colours are wanted."""

from __future__ import annotations

import io
import re
import unicodedata
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from bottleneck.reports.render import for_terminal, render
from bottleneck.results.records import Interval, Warning
from tests.support.result_strategies import RESULTS
from tests.support.results_factory import (
    EVIDENCE,
    make_advice,
    make_device_bound_result,
    make_empty_result,
    make_experiments,
    make_interrupted_result,
    make_result,
    make_stages,
)

MAKERS = [make_result, make_device_bound_result, make_interrupted_result, make_empty_result]


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


@pytest.mark.parametrize("width", [1, 20, 40, 60, 72, 80, 100, 200])
@pytest.mark.parametrize("make", MAKERS)
def test_no_line_is_wider_than_asked_for(make, width):
    for line in render_text(make(), width).splitlines():
        assert cell_len(line) <= width


@pytest.mark.parametrize("name", ["a" * 200, "数据增强" * 30, "🐌" * 50, "cafe\u0301 " * 40, "word " * 60])
def test_long_and_wide_names_fit_into_80_columns(name):
    report = render_text(renamed(name))
    assert max(cell_len(line) for line in report.splitlines()) <= 80
    assert "13.0 ms" in report
    assert "also costs time" in report


def test_eighty_columns_show_the_whole_ladder():
    report = render_text(make_result())
    ladder = [line for line in report.splitlines() if "±" in line]
    assert [line.split()[0] for line in ladder] == [
        *("device", "host", "after_collate", "before_collate", "before_augment", "raw")
    ]
    assert ladder[4].split()[:4] == ["before_augment", "augment", "702", "±"]
    assert ladder[4].endswith("22.8 ms    13.0 ms  fix this first")
    assert "…" not in report


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


def test_on_a_cpu_no_share_of_its_device_is_told():
    report = " ".join(render_short(make_result(environment={"device": "cpu", "device_name": "EPYC"})).split())
    assert "EPYC (CPU)" in report
    assert "648 samples/s. It trains on the CPU, where model and workers share the cores." in report
    assert "Bottleneck: augment, 20.7 ms of the 24.3 ms that the loader alone takes for a batch. Also: load." in report
    assert "62 %" not in report
    assert "1,702" not in report


def test_facts_are_told_apart_from_fixes_and_prose_is_in_no_box():
    advice = tuple(
        replace(make_advice()[0], id=id, title=title, how=how)
        for id, title, how in (("workers-cannot-help", "Cores are full", "less work"), ("cheaper", "Think", "do less"))
    )
    lines = render_short(make_result(advice=advice)).splitlines()
    assert "Cores are full." in lines
    assert "Fix 1  Think, up to 2.6x. How: do less." in lines
    assert "less work" not in " ".join(lines)


@pytest.mark.parametrize("width", [30, 40, 50, 60])
def test_a_narrow_terminal_cuts_no_number_and_no_name(width):
    narrow, wide = " ".join(render_text(make_result(), width).split()), render_text(make_result(), 100)
    ladder, stages = wide.split("\n\n")[2:4]
    for line in [*ladder.splitlines()[1:], *stages.splitlines()[1:7]]:
        name, *_ = line.split()
        gain = re.search(r"[\d.]+x \(.*\)$", line)
        rate = re.search(r"[\d,]+ ± \d+", line)
        assert all(text.group(0) in narrow for text in (gain, rate) if text)
        assert name in narrow
    assert "…" not in narrow.partition(" inside")[0]
    assert "before_augment" in narrow


def test_columns_line_up():
    lines = [line for line in render_text(make_result()).splitlines() if "±" in line]
    assert len({line.index("±") for line in lines}) == 1


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


@pytest.mark.parametrize("stage", ["copy", "handoff"])
def test_what_a_batch_holds_is_told_where_moving_it_holds_the_job(stage):
    moved = replace(make_result().verdict, bottleneck="load", contributors=(stage,))
    report = " ".join(render_text(make_result(verdict=moved)).split())
    assert "One batch holds 2 tensors, 9.19 MiB. Of these, 6.89 MiB need not travel." in report
    assert "The largest is batch[0]: 16x3x224x224 float32." in report
    assert "One batch" not in render_text(make_result())


def test_lines_of_code_stay_as_they_are():
    assert "\n       torch.set_num_threads(1)  # in worker_init_fn\n" in render_text(make_result())


def test_the_stage_that_is_named_comes_first():
    report = render_text(make_result())
    table = report[report.index("\n  stage ") + 1 :].splitlines()
    assert [line.split()[0] for line in table[1:4]] == ["augment", "load", "compute"]


@pytest.mark.parametrize("make", MAKERS)
def test_plain_and_coloured_reports_say_the_same(make):
    assert printed(make(), color_system=None) == render_short(make())


def test_colours_are_for_terminals_only(monkeypatch):
    assert "\x1b[" not in render_text(make_result())
    assert "\x1b[" in printed(make_result(), force_terminal=True, color_system="standard")
    monkeypatch.setenv("NO_COLOR", "1")
    uncoloured = printed(make_result(), force_terminal=True)
    assert not any(f"\x1b[3{colour}m" in uncoloured for colour in range(8))


def test_the_renderable_takes_the_width_of_its_console():
    assert printed(make_result(), width=60, color_system=None) == render_short(make_result(), 60)


def test_what_is_not_known_is_left_out():
    for wait_s in (None, {}, {"p50": None, "count": 3}):
        report = render_text(make_result(evidence={"wait_s": wait_s, "first_batch_s": None}))
        assert "Wait" not in report
        assert "First batch" not in report


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


def test_single_transforms_have_a_table_with_what_they_give():
    lines = render_text(make_result()).splitlines()
    head = next(number for number, line in enumerate(lines) if line.startswith("  inside augment"))
    assert lines[head].split() == ["inside", "augment", "calls/sample", "a", "call", "share", "waiting", "gives"]
    assert [line.split()[0] for line in lines[head + 1 : head + 5]] == [
        *("ColorJitter", "RandomResizedCrop", "LookUpMask", "ToTensor")
    ]
    assert lines[head + 1].split()[1:] == ["0.8", "1.42", "ms", "43", "%", "500x375", "RGB,", "varies"]
    assert lines[head + 3].split()[-4:] == ["90", "%", "224x224", "RGB"]  # it waits
    assert "add up to 84 %" in lines[head + 5]


def test_stages_that_wait_are_named_and_others_are_not():
    report = " ".join(render_text(make_result()).split())
    assert "Of its time in the workers, load is waiting 79 % (disk, network, locks)." in report
    busy = tuple(replace(s, cpu_s_per_batch=s.wall_s_per_batch) for s in make_stages())
    assert "disk, network, locks" not in render_text(make_result(stages=busy))


def test_waiting_for_a_core_is_no_waiting():
    evidence = {**EVIDENCE, "core_wait_per_cpu_s": 3.7}
    assert "disk, network, locks" not in render_text(make_result(evidence=evidence))


def test_a_long_list_of_transforms_says_what_it_leaves_out():
    rows = [{"stage": "augment", "name": f"T{number}"} for number in range(50)]
    report = render_text(make_result(evidence={"transforms": rows}))
    assert "T19 " in report
    assert "T20" not in report
    assert "… and 30 more; the other formats list all." in report
