"""The report for a terminal: fits, leads with the answer, and colours only where colours are wanted."""

from __future__ import annotations

import io
import unicodedata
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from result_strategies import RESULTS
from results_factory import (
    make_device_bound_result,
    make_empty_result,
    make_experiments,
    make_interrupted_result,
    make_result,
    make_stages,
)
from rich.cells import cell_len
from rich.console import Console

from bottleneck.reports.layout import cells
from bottleneck.reports.text import render_text, renderable

MAKERS = [make_result, make_device_bound_result, make_interrupted_result, make_empty_result]


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
    assert "real" in report


def test_eighty_columns_show_the_whole_ladder():
    report = render_text(make_result())
    ladder = [line for line in report.splitlines() if "█" in line]
    assert [line.split()[0] for line in ladder] == [
        *("device", "host", "after_collate", "before_collate", "before_augment", "raw")
    ]
    assert "before_augment    702 ± 5   ███▊       22.8 ms  augment  13.0 ms  real" in ladder[4]
    assert "…" not in report


def test_columns_line_up():
    lines = [line for line in render_text(make_result()).splitlines() if "±" in line]
    assert len({line.index("±") for line in lines}) == 1
    assert len({line.index("█") for line in lines}) == 1


def test_leads_with_the_answer():
    result = make_result()
    words = render_text(result).split()
    assert words[: len(result.verdict.sentence.split())] == result.verdict.sentence.split()


def test_says_everything_there_is_to_say():
    result = make_result()
    report = " ".join(render_text(result).split())
    assert "Not measured: after_augment: no code follows" in report
    assert f"Warning: {result.warnings[0].message}" in report
    assert f"Next: {result.advice[0].title}. {result.advice[0].why} {result.advice[0].how}" in report
    assert f"Then: {result.advice[1].title}." in report
    assert "Wait for a batch: p50 14.8 ms" in report
    assert report.endswith("Measured in 47 s: 4,120 batches, 65,920 samples, 212 MiB of caches.")


def test_lines_of_code_stay_as_they_are():
    assert "\n      torch.set_num_threads(1)  # in worker_init_fn\n" in render_text(make_result())


def test_the_stage_that_is_named_comes_first():
    report = render_text(make_result())
    table = report[report.index("  stage ") :].splitlines()
    assert [line.split()[0] for line in table[1:4]] == ["augment", "load", "compute"]


@pytest.mark.parametrize("make", MAKERS)
def test_plain_and_coloured_reports_say_the_same(make):
    assert printed(make(), color_system=None) == render_text(make())


def test_colours_are_for_terminals_only(monkeypatch):
    assert "\x1b[" not in render_text(make_result())
    assert "\x1b[" in printed(make_result(), force_terminal=True, color_system="standard")
    monkeypatch.setenv("NO_COLOR", "1")
    uncoloured = printed(make_result(), force_terminal=True)
    assert not any(f"\x1b[3{colour}m" in uncoloured for colour in range(8))


def test_the_renderable_takes_the_width_of_its_console():
    assert printed(make_result(), width=60, color_system=None) == render_text(make_result(), 60)


def test_evidence_of_an_unknown_kind_is_left_out():
    for wait_s in (None, "slow", {"p50": "slow"}, {"p50": float("nan")}, [1, 2]):
        report = render_text(make_result(evidence={"wait_s": wait_s, "first_batch_s": None}))
        assert "Wait for a batch" not in report
        assert "First batch" not in report


@settings(max_examples=60, deadline=None)
@given(RESULTS, st.integers(1, 120))
def test_any_result_fits_any_width(result, width):
    for line in render_text(result, width).split("\n"):
        assert cells(line) <= width
        assert line == line.rstrip()
        assert not {unicodedata.category(character) for character in line} & {"Cc", "Cf", "Cs"}


def printed(result, *, width=80, **options) -> str:
    stream = io.StringIO()
    Console(file=stream, width=width, **options).print(renderable(result))
    return stream.getvalue()
