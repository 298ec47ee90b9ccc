"""Utilisation over time is drawn where it was measured, on one axis, and from a hostile file too."""

import itertools

import pytest

from bottleneck.reports.charts.shapes import LABEL_WIDTH, WIDTH
from bottleneck.reports.charts.timeline import MOST_GROUPS, RIGHT, draw_timeline
from tests.support.page_results import make_page_result, make_series
from tests.support.results_factory import EVIDENCE, make_result


def drawn(series):
    return draw_timeline(make_page_result(series=series))


def titles(chart):
    return [label.text for label in chart.labels if label.kind == "title"]


def test_every_panel_that_is_known_is_there():
    assert titles(drawn(make_series())) == ["cores busy", "device busy", "read from disk", "memory of workers"]
    assert titles(drawn(make_series(gpu=False))) == ["cores busy", "read from disk", "memory of workers"]


def test_a_block_has_one_bar_for_what_is_known_of_it_and_one_in_its_lane():
    chart = drawn(make_series())
    raw = next(group for group in chart.groups if group.tip.startswith("raw coupled"))
    assert raw.kind == "job"
    assert len(raw.rects) == 5  # cores of all and of the job, device, disk, lane
    assert len({(bar.x, bar.width) for bar in raw.rects}) == 1
    assert "4.20 cores busy, 3.80 of them by the job; device busy: 38 %; read from disk: 2.10 MiB/s" in raw.tip
    assert [bar.kind for bar in raw.rects] == ["faint", "", "", "", ""]


def test_kinds_and_lanes_tell_the_experiments_apart():
    chart = drawn(make_series())
    assert {group.tip.partition(",")[0]: group.kind for group in chart.groups} == {
        "device coupled": "step", "after_collate coupled": "step", "before_augment coupled": "step",
        "raw coupled": "job", "raw drained": "loader", "without augment": "step",
    }  # fmt: skip
    lanes = [
        mark.text for mark in chart.labels if mark.kind == "soft" and mark.anchor == "end" and "top:" not in mark.text
    ]
    assert lanes == ["device", "after_collate", "before_augment", "raw", "without a stage", "loader alone"]


def test_a_panel_in_which_nothing_happened_says_so():
    rows = [{"begin_s": 0.0, "end_s": 1.0, "name": "raw", "mode": "coupled", "disk_read_bytes_per_s": 0.0}]
    assert [mark.text for mark in drawn({"blocks": rows}).labels][:2] == ["read from disk", "none"]


def test_nothing_is_drawn_where_nothing_was_measured():
    chart = drawn(make_series(rounds=1))
    ends = sorted((group.rects[-1].x, group.rects[-1].x + group.rects[-1].width) for group in chart.groups)
    assert all(after[0] - before[1] > 5 for before, after in itertools.pairwise(ends))


def test_everything_stays_inside_the_chart():
    chart = drawn(make_series())
    for group in chart.groups:
        for bar in group.rects:
            assert LABEL_WIDTH <= bar.x <= bar.x + bar.width <= WIDTH - RIGHT + 1e-6
            assert 0 <= bar.y <= bar.y + bar.height <= chart.height
    points = [tuple(map(float, point.split(","))) for point in chart.line.split()]
    assert all(LABEL_WIDTH <= x <= WIDTH - RIGHT and 0 <= y <= chart.height for x, y in points)


def test_the_axis_has_a_few_round_times():
    for seconds in (0.3, 1.0, 7.0, 43.0, 180.0, 86_400.0):
        row = {"begin_s": 0.0, "end_s": seconds, "name": "raw", "mode": "coupled", "cores_job": 1.0, "cores_busy": 1.0}
        ticks = [mark.text for mark in drawn({"blocks": [row]}).labels if mark.anchor == "middle"]
        assert ticks[0] == "0 s"
        assert 3 <= len(ticks) <= 8


@pytest.mark.parametrize("utilisation", [None, {}, {"series": None}, {"series": {}}])
def test_results_without_a_series_have_no_chart(utilisation):
    assert draw_timeline(make_result(evidence={**EVIDENCE, "utilisation": utilisation})) is None


@pytest.mark.parametrize(
    "bad",
    [
        {}, {"begin_s": 2.0, "end_s": 1.0}, {"begin_s": -1.0, "end_s": 1.0}, {"begin_s": 0.0, "end_s": 1e300},
    ],
)  # fmt: skip
def test_a_row_that_makes_no_sense_is_left_out(bad):
    good = {"begin_s": 1.0, "end_s": 2.0, "cores_busy": -3, "cores_job": 1e300, "gpu_busy_share": -1}
    chart = drawn({"blocks": [bad, good], "blocks_per_row": 0, "memory": [{}, {"time_s": 1, "private_bytes": -5}]})
    assert len(chart.groups) == 1
    assert chart.line == ""
    assert "each bar is a block" in chart.note
    assert titles(chart) == []


def test_a_file_with_endless_rows_is_drawn_in_part():
    rows = [{"begin_s": float(n), "end_s": n + 0.5, "name": f"lane {n}", "mode": "coupled"} for n in range(5_000)]
    chart = drawn({"blocks": rows})
    assert len(chart.groups) == MOST_GROUPS
    assert chart.height < 1_000
