"""Evidence of stages that are measured as one by now."""

from dataclasses import replace

import pytest

from bottleneck.results.records import Warning
from tests.analysis.rule_case import held_by, result_of, with_stage
from tests.analysis.simulated import measure

LINE = {
    "stage": "load",
    "path": "base.py",
    "line": 9,
    "code": "image = cv2.imread(file)",
    "share": 0.6,
    "library": False,
}
IMAGES = {
    "source": "image", "stage": "load", "unit": "bytes", "touched_per_sample": 3_686_400.0, "samples": 16,
    "kept_per_sample": 58_791.0, "share": 0.9,
}  # fmt: skip
CLOCKED = {
    "count": 8,
    "stages": [{"stage": "load", "seconds_each": 0.012}, {"stage": "augment", "seconds_each": 0.004}],
}
SEEN = {"lines": [LINE], "amplification": [IMAGES], "clocked_batches": CLOCKED}
REST = Warning("rest-counts-as-load", "What follows the augmentation counts as `load`.")
CHANGES = Warning("cut-changes-its-argument", "`transform` changes its argument, as part of the stage `augment`.")


def joined(warnings=(), **evidence):
    """A job held by its loading, of which the cut to the augmentation was lost on the way."""
    found = measure(held_by("load", evidence={**SEEN, **evidence}))
    spans = tuple(span for span in found.stages if span.name != "augment")
    found = replace(found, stages=spans, warnings=warnings)
    return result_of(with_stage(found, "load", "fetch"))


def test_what_was_seen_of_a_stage_is_told_of_the_one_that_is_left():
    # Guards: 63 times as many pixels decoded as kept, of a stage `load` that had become `fetch`: not a word of it.
    result = joined()
    (decode, *_) = result.advice
    assert (decode.id, decode.stage) == ("amplification", "fetch")
    assert decode.title == "Decode fewer pixels: resize the images once, beforehand"
    assert [(line.stage, line.share) for line in result.evidence.lines] == [("fetch", pytest.approx(0.6 * 0.75))]
    assert result.evidence.amplification[0].share == pytest.approx(0.9 * 0.75)


def test_a_share_of_what_was_not_clocked_is_not_known():
    assert joined(clocked_batches={}).evidence.lines[0].share is None


@pytest.mark.parametrize(("same", "stages"), [(["load"], ()), (["load", "augment"], ("fetch",))])
def test_it_gives_the_same_again_where_all_of_its_parts_did(same, stages):
    assert joined(repeated={"samples": 8, "stages": same}).evidence.repeated.stages == stages


def test_nothing_is_said_of_a_stage_that_there_is_no_more():
    assert not {w.id for w in joined((REST, CHANGES)).warnings} & {REST.id, CHANGES.id}
    kept = result_of(replace(measure(held_by("load", evidence=SEEN)), warnings=(REST, CHANGES)))
    assert {w.id for w in kept.warnings} >= {REST.id, CHANGES.id}
