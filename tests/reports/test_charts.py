"""The charts of the HTML report: what is drawn where, for the numbers of a result."""

import math
from dataclasses import replace

import pytest

from bottleneck.reports.charts.charts import ROOM, block_chart, draw_charts
from bottleneck.reports.charts.shapes import LABEL_WIDTH, WIDTH
from bottleneck.reports.charts.steps import step_chart
from bottleneck.reports.content.step import parts
from bottleneck.results.evidence import Watched
from bottleneck.results.records import Interval
from tests.support.page_results import make_page_result
from tests.support.results_factory import make_empty_result, make_rate, make_result


def drawn(result, title):
    return next(chart for chart in draw_charts(result) if chart.title == title)


def rect(chart, start):
    return next(each for each in chart.rects if each.tip.startswith(start))


def test_bars_of_the_ladder_are_as_long_as_the_throughput():
    chart = drawn(make_result(), "Throughput with the data cached at each point")
    device, raw = rect(chart, "device: "), rect(chart, "raw: ")
    assert device.width == pytest.approx(ROOM)
    assert raw.width / device.width == pytest.approx(0.00940 / 0.02469)
    assert rect(chart, "before_augment: ").kind == "hot"  # the bottleneck
    assert rect(chart, "raw, loader alone").width == pytest.approx(ROOM * 0.00940 / 0.0243)


def test_a_step_is_cut_into_what_each_stage_adds_one_behind_the_other():
    chart = drawn(make_result(), "One step of the job")
    ends = [each.x + each.width for each in chart.rects]
    begins = [each.x for each in chart.rects]
    assert begins[0] == LABEL_WIDTH
    assert begins[1:] == pytest.approx(ends[:-1], abs=1.0)  # what is nothing is still a hair wide
    assert ends[-1] == pytest.approx(LABEL_WIDTH + ROOM, abs=1.0)
    assert rect(chart, "augment: ").width == pytest.approx(ROOM * 13.03 / 24.69, rel=0.01)


def test_the_parts_of_a_step_are_the_step_whatever_noise_makes_of_the_ladder():
    steps = {"host": 0.0090, "before_collate": 0.0900}  # faster than the device alone, slower than the whole job
    result = make_result()
    experiments = tuple(
        replace(e, coupled=make_rate(steps[e.name])) if e.name in steps else e for e in result.experiments
    )
    noisy = replace(result, experiments=experiments)
    added = [part.seconds for part in parts(noisy)]
    assert sum(added) == pytest.approx(0.02469)
    assert min(added) >= 0
    assert rect(drawn(noisy, "One step of the job"), "copy").width >= 1.0


def test_a_gain_begins_at_no_gain_and_the_line_is_that_of_free_input():
    chart = drawn(make_result(), "Gain if free")
    augment = rect(chart, "augment: ")
    line = next(each for each in chart.segments if each.kind == "bound")
    assert augment.x == LABEL_WIDTH
    assert augment.width / (line.x1 - LABEL_WIDTH) == pytest.approx((0.02469 / 0.00992 - 1) / (2.62 - 1))


def test_every_block_is_a_dot_and_what_took_longer_is_higher():
    result = make_result()
    chart = block_chart(result)
    raw = next(e for e in result.experiments if e.name == "raw")
    dots = [dot for dot in chart.dots if dot.tip.startswith("raw, ")]
    assert len(dots) == len(raw.coupled.blocks)
    by_time = sorted(zip((b.seconds for b in raw.coupled.blocks), dots, strict=True), key=lambda pair: pair[0])
    heights = [dot.y for _, dot in by_time]
    assert heights == sorted(heights, reverse=True)


def test_a_bar_that_is_longer_than_the_chart_has_a_gap_and_its_number():
    chart = drawn(make_result(), "Throughput with the data cached at each point")
    bar = rect(chart, "after_collate, loader alone")
    gaps = [each for each in chart.segments if each.kind == "break"]
    assert bar.width == ROOM
    assert len(gaps) == 2  # of two experiments the loader alone is faster than the device
    assert all(bar.x < gap.x1 < bar.x + bar.width for gap in gaps)
    assert {"13,333 ± 93", "8,889 ± 62"} <= {label.text for label in chart.labels}


def test_steps_are_as_long_as_they_took_and_stand_one_behind_the_other():
    result = make_page_result()
    chart = step_chart(replace(result, evidence=replace(result.evidence, watched=Watched())))
    waits = [each for each in chart.rects if each.kind == "hot"]
    works = [each for each in chart.rects if each.kind == "bar"]
    assert (len(waits), len(works)) == (24, 24)
    assert waits[0].width / waits[1].width == pytest.approx(0.0302 / 0.0003)
    assert works[0].x == pytest.approx(waits[0].x + waits[0].width)
    assert "Orange, 62 %: the main process waits" in chart.note
    assert step_chart(make_result()) is None


def test_each_worker_has_a_lane_below_the_steps_on_the_same_scale():
    chart = step_chart(make_page_result())
    assert [label.text for label in chart.labels] == ["main process", "worker 0", "worker 1", "0", "590 ms"]
    main, lane = ([rect for rect in chart.rects if rect.y == top] for top in sorted({r.y for r in chart.rects})[:2])
    assert len(main) == 2 * 24
    colours = dict(chart.legend)
    loads, augments, collates = ([r for r in lane if r.fill == colours[s]] for s in ("load", "augment", "collate"))
    assert (len(loads), len(augments), len(collates)) == (10, 11, 11)  # the first is loaded before the first step
    per_s = main[0].width / 0.0148
    assert [rect.width / per_s for rect in (loads[0], augments[1], collates[1])] == pytest.approx([0.004, 0.04, 0.003])
    assert augments[1].x == pytest.approx(loads[0].x + loads[0].width)
    assert loads[0].x - main[0].x == pytest.approx(per_s * 0.029)
    assert "worker 0, a batch: load 4.00 ms, augment 40.0 ms, collate 3.00 ms" in {rect.tip for rect in lane}


def test_lanes_that_make_no_sense_are_not_drawn():
    result = make_page_result()
    for odd in ({"worker": None}, {"end_s": -1.0}, {"begin_s": 1e300}, {"stages_s": {"load": -1.0}}, {"stages_s": {}}):
        batches = tuple(replace(batch, **odd) for batch in result.evidence.watched.batches)
        watched = replace(result.evidence.watched, batches=batches)
        assert step_chart(replace(result, evidence=replace(result.evidence, watched=watched))).legend == ()


def test_where_nothing_was_measured_nothing_is_drawn():
    assert draw_charts(make_empty_result()) == ()
    assert block_chart(make_empty_result()) is None


@pytest.mark.parametrize("value", [math.inf, 1e300, -1e300, math.nan])
def test_numbers_from_a_file_that_make_no_sense_stay_on_the_paper(value):
    result = make_result()
    bad = Interval(value, value, value)
    stages = tuple(replace(s, gain_if_free=bad, exposed_s_per_batch=bad) for s in result.stages)
    experiments = tuple(
        replace(e, coupled=replace(e.coupled, low=value, high=value, samples_per_s=value)) if e.coupled else e
        for e in result.experiments
    )
    result = replace(result, stages=stages, experiments=experiments)
    for chart in [*draw_charts(result), block_chart(result)]:
        for each in chart.rects:
            assert 0 <= each.x <= each.x + each.width <= WIDTH
        for each in chart.dots:
            assert 0 <= each.x <= WIDTH
            assert 0 <= each.y <= chart.height
