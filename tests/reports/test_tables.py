"""The tables of a report: what each shows where, and what it leaves out."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from bottleneck.analysis.analyse import analyse
from bottleneck.analysis.settings import with_price
from bottleneck.reports import evidence as io
from bottleneck.reports.advice import expected_gain
from bottleneck.reports.answer import lost_money
from bottleneck.reports.html import plot_blocks
from bottleneck.reports.render import render
from bottleneck.results.evidence import LoopSeen
from bottleneck.results.records import Experiment, Interval, Stage
from tests.analysis.simulated import AUGMENT_BOUND, DEVICE_BOUND, map_blocks, measure
from tests.support.in_full import render_in_full
from tests.support.results_factory import (
    EVIDENCE,
    make_advice,
    make_interrupted_result,
    make_interval,
    make_rate,
    make_result,
)

# --- functions --------------------------------------------------------------------------------------------


def row(function, stage, own_share):
    return {"function": function, "file": "data.py", "line": 7, "own_share": own_share, "stage": stage}


def report(form, *rows):
    profile = {"sampler": "py-spy", "rate_hz": 100, "seconds": 2.0, "samples": 400, "functions": list(rows)}
    return render_in_full(make_result(evidence={**EVIDENCE, "profile": profile}), form)


ROWS = [row(f"crop_{n}", "augment", 0.1) for n in range(7)] + [row("read", "load", 0.2), row("glue", None, 0.04)]


def test_the_terminal_shows_the_costliest_functions():
    text = report("text", *ROWS)
    assert text.count("crop_") == 5
    assert "… and 4 more" in text
    assert "data.py:7" in text
    assert "taken by py-spy" in text


@pytest.mark.parametrize("form", ["markdown", "html"])
def test_other_formats_show_all(form):
    text = report(form, *ROWS, row("tiny", "load", 0.001))
    assert "Functions with the most own time" in text
    assert all(name in text for name in ("crop_6", "read", "glue", "data.py:7"))
    assert "tiny" not in text


# --- garbage ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["text", "markdown", "html"])
def test_collections_of_garbage_have_a_line_where_they_take_time(form):
    seen = {"count": 9, "share": 0.25, "seconds_each": 0.1, "objects": 4_200_000}
    text = render_in_full(make_result(evidence={**EVIDENCE, "collections": seen}), form)
    assert "15.0 s of each minute of the workers, with 4,200,000 objects alive" in " ".join(text.split())
    for little in ({**seen, "share": 0.01}, {**seen, "share": None}):
        assert "garbage" not in render_in_full(make_result(evidence={**EVIDENCE, "collections": little}), form)


# --- the loop of a script ---------------------------------------------------------------------------------


SEEN = LoopSeen(batches=100, until_optimizer_s=0.006, optimizer_s=0.001, after_optimizer_s=0.003)


def with_loop(seen):
    result = make_result()
    return replace(result, evidence=replace(result.evidence, loop=seen))


@pytest.mark.parametrize("form", ["text", "markdown", "html"])
def test_a_slow_logger_shows(form):
    text = render_in_full(with_loop(SEEN), form)
    assert "3.00 ms" in text
    assert "After the optimizer" in text
    quick = render_in_full(with_loop(replace(SEEN, after_optimizer_s=0.0005)), form)
    assert "0.50 ms" in quick
    assert "After the optimizer" not in quick


# --- the device ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["text", "markdown", "html"])
def test_the_time_on_the_device_is_shown_if_it_was_measured(form):
    text = " ".join(render_in_full(make_result(), form).split())
    for shown in ("14.9 ms", "60 %", "over 234 batches of raw. Training takes 38 % (37–39 %) of it."):
        assert shown in text
    for unseen in ({}, {"batches": 3}, {"copy_s_per_batch": 0.0, "step_s_per_batch": 0.0, "idle_s_per_batch": None}):
        assert "Time on the device" not in render_in_full(make_result(evidence={"device_time": unseen}), form)


# --- waiting and reading ------------------------------------------------------------------------------------


STALLS = {"count": 60, "threshold_s": 0.02, "lost_share": 0.2, "period_batches": 16, "period_s": 0.4}
READS = {
    "experiments": [
        {"name": "after_collate", "asked_bytes_per_sample": 20.0, "storage_bytes_per_sample": 0.0, "source": "none"},
        {"name": "raw", "asked_bytes_per_sample": 102400.0, "storage_bytes_per_sample": 0.0, "source": "page cache"},
        {"name": "cold", "asked_bytes_per_sample": 10.0, "storage_bytes_per_sample": 204800.0, "source": "disk"},
    ],
    "missing": ["Data of this job is on nfs4."],
}


def sentences(result):
    return [text for section in io.reading(result) for items in section.blocks for text in items.texts]


def with_cold(result, *, available=True):
    cold = Experiment("cold", available, None if available else "no", make_rate(0.074) if available else None, None)
    storage = Stage("storage", "raw", "cold", None, make_interval(0.05, 0.001), None, make_interval(3.0, 0.1), "real")
    stages = (*result.stages, storage) if available else result.stages
    return replace(result, experiments=(*result.experiments, cold), stages=stages)


@pytest.mark.parametrize("kind", ["text", "markdown", "html"])
def test_every_format_tells_of_stalls_epochs_reads_and_the_cold_epoch(kind):
    evidence = {
        "stalls": STALLS, "reads": READS, "cold": {"files": 1200, "bytes": 2**30},
        "epoch_gap": {"seconds": 1.5, "persistent_workers": False, "started_anew": True},
    }  # fmt: skip
    report = " ".join(render_in_full(with_cold(make_result(evidence=evidence)), kind).split())
    assert (
        "waits of the main process over 20.0 ms: 60, one every 16 batches (400 ms), 20 % of the time of raw" in report
    )
    assert "the workers start again: 1.50 s to the first batch" in report
    assert "raw 100 KiB a sample from the page cache, cold 200 KiB a sample from the disk" in report
    assert "Data of this job is on nfs4." in report
    assert "reaches 216 samples/s, and one that finds them there 648" in report
    assert "1,200 files (1.00 GiB)" in report


def test_requests_over_the_network_and_a_trial_with_more_workers_are_told():
    pace = {"num_workers": 2, "requests": 40, "requests_per_s": 38.2, "bytes_per_s": 2**20, "in_flight": 1.9,
            "first_byte_s": 0.05, "transfer_s": 0.002}  # fmt: skip
    seen = {"requests_per_sample": 1.0, "bytes_per_sample": 2**14, "share": 0.98, "computing_share": 0.03, "job": pace}
    (alone,) = sentences(make_result(evidence={"network": seen}))
    assert "1 requests a sample, 16.0 KiB. First byte after 50.0 ms, the rest in 2.00 ms." in alone
    assert "2 workers: 1.90 requests at once, 38.2 and 1.00 MiB a second" in alone
    assert "open for 98 % of a worker's time, and 3.0 % of that computes" in alone
    more = {**pace, "num_workers": 8, "in_flight": 7.8, "requests_per_s": 151.0}
    _, tried = sentences(make_result(evidence={"network": {**seen, "more": more}}))
    assert tried == (
        "Network, in a trial: 8 workers: 7.80 requests at once, 151 and 1.00 MiB a second; first byte after 50.0 ms."
    )


def test_what_was_not_measured_is_not_told():
    assert sentences(make_result(evidence={})) == []
    assert io.cold_epoch(make_result()) == ""
    assert io.cold_epoch(with_cold(make_result(), available=False)) == ""
    assert sentences(make_result(evidence={"stalls": {**STALLS, "count": 0}})) == []


def test_waits_are_the_jobs_where_it_computes_in_the_main_process_and_else_are_not_called_so():
    # Guards: 'wait for a batch' while a device is busy all the time, reads like idle time of it.
    for device, whose in (("cpu", ""), ("cuda:0", " of the main process")):
        result = make_result(evidence={"stalls": STALLS, "wait_s": {"p50": 0.01}}, environment={"device": device})
        waits, stalls = sentences(result)
        assert stalls.startswith(f"Stalls, waits{whose} over 20.0 ms: 60")
        assert waits.startswith(f"Wait{whose} for a batch")
        assert ("while the device may be busy: p50 10.0 ms" in waits) == bool(whose)


def test_waits_that_cost_a_device_bound_job_nothing_are_said_to():
    result = make_result(evidence={"stalls": STALLS, "wait_s": {"p50": 0.01}}, environment={"device": "cuda:0"})
    waits, stalls = sentences(replace(result, verdict=replace(result.verdict, state="device_bound")))
    assert "while the device has work, so it costs the job next to nothing: p50 10.0 ms" in waits
    assert stalls.endswith("20 % of the time of raw, in which the device has work.")


# --- starting up --------------------------------------------------------------------------------------------

STARTING = {
    "seconds": 12.0,
    "parts": [
        {"name": "imports", "seconds": 5.0}, {"name": "making the dataset", "seconds": 0.4},
        {"name": "imports again in workers", "seconds": 6.6},
    ],
    "lines": [
        {"part": "imports", "path": "train.py", "line": 5, "code": "import slow", "seconds": 3.0, "again": True},
        {"part": "imports", "path": "train.py", "line": 6, "code": "import less", "seconds": 1.0, "again": True},
    ],
    "bare_worker_s": 3.2,
    "full_worker_s": 3.3,
}  # fmt: skip


@pytest.mark.parametrize("kind", ["text", "markdown", "html"])
def test_every_format_tells_of_a_slow_start(kind):
    evidence = {"starting": STARTING, "epoch_gap": {"seconds": 1.5, "started_anew": True}}
    report = " ".join(render_in_full(make_result(evidence=evidence), kind).split())
    assert "Starting up takes 12.0 s: imports again in workers 6.60 s, imports 5.00 s." in report
    assert "making the dataset" in report
    assert "train.py:5" in report
    assert "train.py:6" not in report
    assert "A single worker starts in 3.20 s without the dataset, and in 3.30 s with it." in report
    assert "Each later epoch begins with 1.50 s without a batch, because the workers start again." in report


@pytest.mark.parametrize("kind", ["text", "markdown", "html"])
def test_a_quick_start_is_not_told(kind):
    report = render_in_full(make_result(evidence={"starting": {**STARTING, "seconds": 3.0}}), kind)
    assert "tarting up" not in report


# --- promises -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gain", "basis", "told"),
    [
        (Interval(2.49, 2.44, 2.54), "measured", "Gain: at most 2.49x (2.44–2.54), a measured upper bound."),
        # Guards: 'at most 0.85x' reads as a promise.
        (Interval(0.85, 0.56, 1.29), "measured", "Gain: not measured precisely enough."),
        (Interval(2.6, 1.0, 2.6), "estimated", "Gain: up to 2.6x, an estimate."),
        (Interval(1.5, 1.2, 1.8), "estimated", "Gain: about 1.50x (1.20–1.80), an estimate."),
        (None, None, ""),
    ],
)
def test_the_gain_says_what_it_rests_on(gain, basis, told):
    of_a_stage = make_advice()[1]
    assert expected_gain(replace(of_a_stage, gain=gain, gain_basis=basis)) == told


def test_the_gain_of_an_edit_that_was_tried_is_no_upper_bound():
    tried = replace(make_advice()[0], gain=Interval(1.8, 1.7, 1.9), gain_basis="measured")
    assert expected_gain(tried) == "Gain: about 1.80x (1.70–1.90), measured in a trial."


# --- money that is lost -------------------------------------------------------------------------------------


EFFICIENCY = Interval(0.381, 0.362, 0.400)


def priced(price, *, efficiency=EFFICIENCY):
    return with_price(make_result(verdict=replace(make_result().verdict, efficiency=efficiency)), price)


@pytest.mark.parametrize(
    ("price", "told"),
    [
        (2.5, "Of the 2.5 that a GPU hour costs, 1.55 (1.50–1.59) is lost"),
        (0.35, "Of the 0.35 that a GPU hour costs, 0.217 (0.210–0.223) is lost"),
        (1200, "Of the 1200 that a GPU hour costs, 742.80 (720.00–765.60) is lost"),
    ],
)
def test_the_loss_has_digits_as_its_price_has_and_its_interval(price, told):
    assert lost_money(priced(price)).startswith(told)


def test_without_an_efficiency_no_loss_is_claimed():
    result = with_price(make_interrupted_result(), 2.5)
    assert result.evidence.lost_per_gpu_hour is None
    assert "unknown" in lost_money(result)


# --- what a throughput counts -------------------------------------------------------------------------------


@pytest.mark.parametrize(("batch_size", "unit"), [(None, "batches/s"), (1, "samples/s")])
@pytest.mark.parametrize("job", [AUGMENT_BOUND, DEVICE_BOUND])
def test_batches_whose_size_is_not_known_are_counted_as_such(job, batch_size, unit):
    measured = measure(replace(job, pipeline={**job.pipeline, "batch_size": batch_size}))
    result = analyse(map_blocks(measured, lambda block: replace(block, samples=block.batches)))
    for report in (result.verdict.sentence, *(render(result, kind) for kind in ("text", "markdown", "html"))):
        assert [each for each in ("batches/s", "samples/s") if each in report] == [unit]


# --- the plot of the blocks ---------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [math.inf, 1e300, -1e300, math.nan, 0.0])
def test_blocks_from_a_file_that_make_no_sense_stay_on_the_paper(seconds):
    result = make_result()

    def odd(rate):
        return replace(rate, blocks=(replace(rate.blocks[0], seconds=seconds), *rate.blocks[1:]))

    experiments = tuple(replace(e, coupled=odd(e.coupled)) if e.coupled else e for e in result.experiments)
    plot = plot_blocks(replace(result, experiments=experiments))
    assert plot.dots
    for dot in plot.dots:
        assert 0 <= dot.x <= plot.width
        assert 0 <= dot.y <= plot.height
