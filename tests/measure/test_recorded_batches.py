"""How unlike the recorded batches are, of which stages that are left out are served."""

import pytest
import torch

from bottleneck.loader.record.plan import Plan
from bottleneck.measure.batch_cache import CachedBatch
from bottleneck.measure.preparation import Recording, describe_recorded
from tests.support.as_json import in_json

describe_recorded = in_json(describe_recorded)


def batches(*lengths):
    return [CachedBatch(torch.zeros(length), 1) for length in lengths]


@pytest.mark.parametrize(("lengths", "size_cv"), [((8, 8, 8), 0.0), ((8,), 0.0), ((0, 0), 0.0), ((10, 20, 30), 0.5)])
def test_the_sizes_of_batches_are_told_by_their_deviation_over_their_mean(lengths, size_cv):
    described = describe_recorded(Recording(Plan("cut"), batches(*lengths)))
    assert described == {"count": len(lengths), "size_cv": pytest.approx(size_cv)}


def test_workers_may_have_recorded_more_than_was_kept_of_them():
    plan = Plan("cut", batch_sizes=(4,) * 12)
    assert describe_recorded(Recording(plan, batches(3, 5)))["count"] == 12
