"""What a throughput counts: samples, or batches where nothing says how many samples one has."""

from dataclasses import replace

import pytest

from bottleneck.analysis.analyse import analyse
from bottleneck.analysis.comparison import compare
from bottleneck.reports.render import render
from bottleneck.results.records import Block, Rate, blocks_of
from bottleneck.tuning.change import Setting
from bottleneck.tuning.changes import choose
from bottleneck.tuning.record import Tuned, conclude, rung_of
from tests.analysis.simulated import AUGMENT_BOUND, DEVICE_BOUND, Job, measure


def given_whole(job, batch_size, samples=1):
    """A job whose loader gets its batches whole, each counted as so many samples."""
    measured = measure(replace(job, pipeline={**job.pipeline, "batch_size": batch_size}))

    def counted(rate):
        return Rate.of(replace(block, samples=samples * block.batches) for block in blocks_of(rate))

    experiments = tuple(
        replace(e, coupled=counted(e.coupled), drained=counted(e.drained), workers=counted(e.workers))
        for e in measured.experiments
    )
    without = tuple(replace(w, coupled=counted(w.coupled)) for w in measured.without)
    return analyse(replace(measured, experiments=experiments, without=without))


CONTRADICTING = Job(coupled={"device": 0.0332, "raw": 0.0100})
sizes = pytest.mark.parametrize(("batch_size", "samples"), [(None, 1), (1, 1), (None, 16)])


def check(reports, *, unknown):
    for report in reports:
        assert ("batches/s" in report, "samples/s" in report) == (unknown, not unknown)


@pytest.mark.parametrize("job", [AUGMENT_BOUND, DEVICE_BOUND, CONTRADICTING])
@sizes
def test_what_is_counted_is_said_in_all_reports(job, batch_size, samples):
    result = given_whole(job, batch_size, samples)
    reports = (result.verdict.sentence, *(render(result, kind) for kind in ("text", "markdown", "html")))
    check(reports, unknown=(batch_size, samples) == (None, 1))


@sizes
def test_what_is_counted_is_said_of_two_results(batch_size, samples):
    base, head = given_whole(AUGMENT_BOUND, batch_size, samples), given_whole(DEVICE_BOUND, batch_size, samples)
    compared = compare(base, head)
    alone = (render(compared, kind) for kind in ("text", "markdown", "html"))
    of_a_job = (render(head, kind, compared) for kind in ("markdown", "html"))
    check((compared.sentence, *alone, *of_a_job), unknown=(batch_size, samples) == (None, 1))


@sizes
def test_what_is_counted_is_said_of_a_tuning(batch_size, samples):
    workers = Setting(*choose(["num_workers"]), 4)
    blocks = [[Block(n, samples * 40, seconds, 40) for n in range(5)] for seconds in (1.0, 0.5)]
    rungs = [rung_of((), blocks[:1], None, 0.0), rung_of((workers,), blocks, None, 0.0)]
    for ladder in (rungs, rungs[:1]):
        tuned = conclude(Tuned(ladder=ladder, seconds=60.0), (), {}, {"batch_size": batch_size})
        reports = (render(tuned, kind) for kind in ("text", "markdown", "html"))
        check((tuned.sentence, *reports), unknown=(batch_size, samples) == (None, 1))
