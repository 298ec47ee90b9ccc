"""Advice on batches of many tensors, and of objects that are pickled: words, promises and places."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bottleneck.analysis.edits.edits import changes_for, edit_of
from tests.analysis.rule_case import advice_of, result_of
from tests.analysis.rule_cases.transferring import (
    MANY_TENSORS,
    OBJECTS,
    SNAPSHOTS,
    boxes,
    handing_over,
    objects,
    snapshots,
)
from tests.analysis.simulated import measure


def stage_of(job):
    return next(stage for stage in result_of(job).stages if stage.name == "handoff")


def collecting(job, share):
    """The measurement of a job whose main process collects garbage for that part of its time."""
    found = measure(job)

    def collects(rate):
        return rate and replace(rate, blocks=tuple(replace(b, collecting_s=share * b.seconds) for b in rate.blocks))

    return replace(found, experiments=tuple(replace(e, coupled=collects(e.coupled)) for e in found.experiments))


def test_many_tensors_are_counted_with_what_they_carry():
    advice = advice_of(MANY_TENSORS)["many-tensors"]
    assert advice.title == "Send fewer, larger tensors: 112 of the 113 of a batch carry 4.1 % of its bytes"
    assert "With one for each field, 6 remain." in advice.why
    assert "descriptors" not in advice.why
    assert "torch.cat(boxes)" in advice.how


def test_the_promise_of_fewer_tensors_goes_with_their_number():
    gains = [advice_of(handing_over(**boxes(samples)))["many-tensors"].gain.estimate for samples in (4, 10, 28)]
    assert gains == sorted(gains)
    assert gains[-1] < stage_of(MANY_TENSORS).gain_if_free.estimate


@pytest.mark.parametrize(("limit", "told"), [(1024, True), (65_536, False), (None, False)])
def test_descriptors_are_named_where_the_limit_is_close(limit, told):
    job = replace(handing_over(**boxes(28), descriptors_in_flight=1017), environment={"open_files_limit": limit})
    words = "Batches in flight take up to 1,017 file descriptors, and a process may have 1,024."
    assert (words in advice_of(job)["many-tensors"].why) == told


@pytest.mark.parametrize(
    ("unread", "path", "title", "how"),
    [
        (True, "['G']", "Leave batch['G'] out of the batch: the train step uses none of it", "batch.pop('G')"),
        (True, "[1][*]['G']", "Leave batch[1][*]['G'] out of the batch", "leave it out in __getitem__"),
        (
            False,
            "['G']",
            "Send tensors instead of the objects in batch['G']",
            "in __getitem__ or collate_fn, make tensors",
        ),
        (
            None,
            "['G']",
            "Send tensors instead of the objects in batch['G']",
            "in __getitem__ or collate_fn, make tensors",
        ),
    ],
)
def test_objects_are_left_out_only_if_they_are_known_to_be_unread(unread, path, title, how):
    advice = advice_of(handing_over(**objects(unread=unread, path=path)))["pickled-objects"]
    assert advice.title.startswith(title)
    assert advice.how.startswith(how)
    assert f"16 objects of type networkx.Graph in batch{path}: 20,000 Python objects" in advice.why


@pytest.mark.parametrize(("unread", "changes"), [(True, ["leave_out"]), (False, []), (None, [])])
def test_a_tuning_leaves_out_only_objects_that_are_known_to_be_unread(unread, changes):
    result = result_of(handing_over(**objects(unread=unread)))
    advice = next(item for item in result.advice if item.id == "pickled-objects")
    assert list(changes_for(result, advice)) == changes
    script = replace(result, pipeline={**result.pipeline, "source": "script"})
    assert list(changes_for(script, advice)) == []


def test_the_promise_of_fewer_objects_goes_with_their_time():
    quick, slow = (
        advice_of(handing_over(**objects(unpickle_s=seconds)))["pickled-objects"].gain for seconds in (0.002, 0.008)
    )
    most = stage_of(OBJECTS).gain_if_free.estimate
    assert 1 < quick.estimate < slow.estimate < quick.high == slow.high == pytest.approx(most)


@pytest.mark.parametrize(("python_objects", "more"), [(20_000, True), (200, False)])
def test_collecting_garbage_counts_if_a_batch_brings_many_objects(python_objects, more):
    job = handing_over(**objects(0.003, 0.003, python_objects=python_objects))
    calm, collects = (advice_of(found)["pickled-objects"] for found in (job, collecting(job, 0.2)))
    assert (collects.gain.estimate > 1.1 * calm.gain.estimate) == more
    assert ("collecting garbage" in collects.why) == more


@pytest.mark.parametrize(
    ("job", "cause"), [(MANY_TENSORS, "many-tensors"), (handing_over(**objects(0.003, 0.003)), "pickled-objects")]
)
def test_the_cause_stands_before_what_only_avoids_it(job, cause):
    result = result_of(collecting(job, 0.3 if cause == "pickled-objects" else 0.0))
    ids = [item.id for item in result.advice]
    assert ids[0] == cause
    assert "no-workers-better" in ids
    assert ("garbage-collection" in ids) == (cause == "pickled-objects")


def test_what_can_be_pasted_is_an_edit():
    for job, cause in ((MANY_TENSORS, "many-tensors"), (OBJECTS, "pickled-objects")):
        result = result_of(job)
        advice = next(item for item in result.advice if item.id == cause)
        assert edit_of(advice, result.pipeline, result.evidence) is not None


# --- snapshots ------------------------------------------------------------------------------------------------


def test_snapshots_are_told_with_their_time_and_an_interval():
    advice = advice_of(SNAPSHOTS)["frequent-snapshots"]
    assert advice.title == (
        "Take snapshots of the loader less often: with every batch, workers send their dataset's state"
    )
    assert "A snapshot takes 28.0 ms in a worker" in advice.why
    assert advice.evidence["proposed"] == {"snapshot_every_n_steps": 1000}  # for 16 workers
    result = result_of(SNAPSHOTS)
    assert list(changes_for(result, advice)) == ["snapshot_every_n_steps"]
    lines = edit_of(advice, result.pipeline, result.evidence).lines
    assert lines == "-StatefulDataLoader(...)\n+StatefulDataLoader(..., snapshot_every_n_steps=1000)"


def test_the_promise_of_fewer_snapshots_goes_with_their_number():
    gains = [
        advice_of(replace(SNAPSHOTS, evidence=snapshots(interval)))["frequent-snapshots"].gain.estimate
        for interval in (1, 10)
    ]
    assert 1 < gains[1] < gains[0] <= stage_of(SNAPSHOTS).gain_if_free.estimate


def test_a_stream_takes_more_snapshots_in_an_interval():
    gains = [
        advice_of(replace(SNAPSHOTS, evidence=snapshots(10, loader={"iterable": iterable})))["frequent-snapshots"].gain
        for iterable in (False, True)
    ]
    assert gains[0].estimate < gains[1].estimate
