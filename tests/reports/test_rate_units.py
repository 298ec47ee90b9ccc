"""What a throughput counts: samples, or batches where nothing says how many samples one has."""

from dataclasses import replace

import pytest

from bottleneck.analysis.analyse import analyse
from bottleneck.reports.render import render
from tests.analysis.simulated import AUGMENT_BOUND, DEVICE_BOUND, measure


def given_whole(job, batch_size, samples=1):
    """A job whose loader gets its batches whole, each counted as so many samples."""
    measured = measure(replace(job, pipeline={**job.pipeline, "batch_size": batch_size}))

    def counted(blocks):
        return tuple(replace(block, samples=samples * block.batches) for block in blocks)

    experiments = tuple(
        replace(e, coupled=counted(e.coupled), drained=counted(e.drained), workers=counted(e.workers))
        for e in measured.experiments
    )
    without = tuple(replace(w, coupled=counted(w.coupled)) for w in measured.without)
    return analyse(replace(measured, experiments=experiments, without=without))


@pytest.mark.parametrize("job", [AUGMENT_BOUND, DEVICE_BOUND])
@pytest.mark.parametrize(("batch_size", "samples"), [(None, 1), (1, 1), (None, 16)])
def test_what_is_counted_is_said_in_all_reports(job, batch_size, samples):
    result = given_whole(job, batch_size, samples)
    unknown = (batch_size, samples) == (None, 1)
    for report in (result.verdict.sentence, *(render(result, kind) for kind in ("text", "markdown", "html"))):
        assert ("batches/s" in report, "samples/s" in report) == (unknown, not unknown)
