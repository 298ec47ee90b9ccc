"""Stages that the user marked: the slow one is named, wherever its author put it."""

import pytest

from tests.kinds.marked_parts import Marked, Outside, Pad, Stream, WithItems, marked_step
from tests.kinds.slow_parts import check_slow_part

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("slow", ["read", "other"])
def test_a_stage_within_getitem(slow):
    diagnosis = check_slow_part(slow, Marked(slow))
    assert [stage.name for stage in diagnosis.stages] == [
        "compute", "handoff", "collate", "other", "crop", "read",
    ]  # fmt: skip


@pytest.mark.parametrize("slow", ["pad", "collate"])
def test_a_stage_within_the_collate_function(slow):
    check_slow_part(slow, Marked(None), collate_fn=Pad(slow))


@pytest.mark.parametrize("slow", ["read", "other"])
def test_a_stage_within_a_stream(slow):
    check_slow_part(slow, Stream(slow))


def test_a_stage_within_another():
    diagnosis = check_slow_part("read", Outside("read"))
    assert "around" not in diagnosis.verdict.contributors


def test_a_stage_of_a_dataset_that_fetches_batches():
    check_slow_part("crop", WithItems("crop"))


def test_a_stage_without_workers():
    check_slow_part("crop", Marked("crop"), num_workers=0)


def test_a_stage_in_spawned_workers():
    check_slow_part("crop", Marked("crop"), budget=10.0, multiprocessing_context="spawn")


def test_a_mark_in_the_train_step_is_refused_by_name():
    diagnosis = check_slow_part("crop", Marked("crop"), train_step=marked_step)
    messages = {warning.id: [] for warning in diagnosis.warnings}
    for warning in diagnosis.warnings:
        messages[warning.id].append(warning.message)
    (refused,) = messages["mark-outside-loader"]
    assert '"optimise"' in refused
    assert "main process" in refused
    assert any('"unused"' in message for message in messages["mark-not-called"])
