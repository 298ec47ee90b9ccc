"""The Python entry points; the measuring has separate tests, so its measurements are given here."""

import html
import json
import re
from dataclasses import FrozenInstanceError

import pytest
import torch

import bottleneck
from bottleneck.api import Diagnosis, attempt_diagnosis
from bottleneck.errors import MeasurementError, UsageError
from bottleneck.job.pipeline import Pipeline
from bottleneck.measure import entry
from bottleneck.measure.entry import Outcome
from bottleneck.measure.options import MeasureOptions
from bottleneck.results.json import save
from bottleneck.results.records import Interval
from tests.support.results_factory import make_result

JOB = {"dataset": [1, 2, 3, 4], "train_step": print, "batch_size": 2}


@pytest.fixture
def measured(monkeypatch):
    """Arguments of `measure`, and the failure that it shall return."""
    record = {"failure": None, "asked": []}

    def measure(pipeline, options, *, judge, on_progress):
        record["asked"].append((pipeline, options, on_progress))
        return Outcome(make_result(), record["failure"])

    monkeypatch.setattr(entry, "measure", measure)
    return record


def test_a_diagnosis_of_a_mapping(measured):
    progress = [].append
    diagnosis = bottleneck.diagnose(JOB, budget="2m", quick=True, seed=3, cache_bytes=1000, progress=progress)
    assert isinstance(diagnosis, Diagnosis)
    assert diagnosis.verdict.bottleneck == "augment"
    [(pipeline, options, told)] = measured["asked"]
    assert told == progress
    assert pipeline.dataset == [1, 2, 3, 4]
    assert options == MeasureOptions(budget_s=120.0, quick=True, seed=3, cache_budget_bytes=1000)


def test_the_price_of_a_gpu_hour_is_part_of_the_evidence(measured):
    diagnosis = bottleneck.diagnose(JOB, gpu_hour_price=2)
    efficiency = diagnosis.verdict.efficiency
    assert diagnosis.evidence.lost_per_gpu_hour == Interval(
        2 * (1 - efficiency.estimate), 2 * (1 - efficiency.high), 2 * (1 - efficiency.low)
    )
    assert "Of the 2 that a GPU hour costs" in str(diagnosis)
    assert bottleneck.diagnose(JOB).evidence.gpu_hour_price is None


@pytest.mark.parametrize("failure", [MeasurementError("Worker 1 died."), KeyboardInterrupt()])
def test_a_failure_is_raised_with_what_was_measured(measured, failure):
    measured["failure"] = failure
    with pytest.raises(type(failure)) as caught:
        bottleneck.diagnose(JOB)
    assert caught.value.diagnosis.experiments
    attempt = attempt_diagnosis(Pipeline(**JOB), MeasureOptions())
    assert attempt.failure is failure
    assert attempt.diagnosis.experiments


@pytest.mark.parametrize(
    ("pipeline", "options", "words"),
    [
        (torch.utils.data.DataLoader([1]), {}, "not a DataLoader.*from_loader"),
        (None, {}, "not a NoneType"),
        ({**JOB, "modle": 1}, {}, "'model'"),
        ({**JOB, "batch_size": 5}, {}, "batch_size=5 is never filled"),
        (JOB, {"budget": "soon"}, "not a duration"),
        (JOB, {"budget": -1}, "not a duration above 0"),
        (JOB, {"budget": 10**400}, "not a duration"),
        (JOB, {"progress": 5}, "progress must be a function"),
        (JOB, {"flamegraph": 3}, "flamegraph must be the path of a folder, not 3"),
        (JOB, {"trace": True}, "trace must be the path of a folder, not True"),
        (JOB, {"seed": 1.5}, "seed must be a whole number"),
        (JOB, {"seed": -1}, "seed must be a whole number, 0 to 4294967295"),
        (JOB, {"seed": 2**70}, "seed must be a whole number, 0 to 4294967295"),
        *((JOB, {"gpu_hour_price": price}, "a number above zero") for price in (0, float("nan"), "2.5", True)),
        (JOB, {"cache_bytes": 0}, "cache_bytes must be a whole number, 1 or more"),
    ],
)
def test_bad_input_is_refused_before_anything_is_measured(measured, pipeline, options, words):
    with pytest.raises(UsageError, match=words):
        bottleneck.diagnose(pipeline, **options)
    assert measured["asked"] == []


@pytest.mark.parametrize("pair", [("a.json", "b.json"), (None, None), (1, 2)])
def test_what_is_no_diagnosis_cannot_be_compared(pair):
    with pytest.raises(UsageError, match=r"compare needs two diagnoses.*bottleneck\.load"):
        bottleneck.compare(*pair)


def test_saved_and_loaded_again_it_is_the_same(tmp_path, measured):
    diagnosis = bottleneck.diagnose(JOB)
    save(diagnosis, tmp_path / "result.json")
    loaded = bottleneck.load(tmp_path / "result.json")
    assert isinstance(loaded, Diagnosis)
    assert loaded.to_json() == diagnosis.to_json()
    assert json.loads(loaded.to_json())["schema_version"] == 1


def test_it_is_immutable_and_prints_its_report(measured):
    diagnosis = bottleneck.diagnose(JOB)
    with pytest.raises(FrozenInstanceError):
        diagnosis.verdict = None
    text = str(diagnosis)
    assert text.startswith("INPUT-BOUND  ImageFolder\n")
    assert not text.endswith("\n")
    assert "\n" not in repr(diagnosis)
    assert "| " in diagnosis.to_markdown()


def test_a_notebook_shows_the_page_in_a_frame_that_reaches_nothing(measured):
    diagnosis = bottleneck.diagnose(JOB)
    [(page, permissions)] = re.findall(r'<iframe srcdoc="([^"]*)" sandbox="([^"]*)"', diagnosis._repr_html_())
    assert html.unescape(page) == diagnosis.to_html()
    assert permissions == "allow-scripts"  # with allow-same-origin too, they could reach the notebook
