"""Results survive the way to JSON and back, and other files are refused in one sentence."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from bottleneck.errors import BottleneckError, ExitStatus, ResultFileError
from bottleneck.results.json import from_json, to_json
from tests.support.rank_results import make_ranks_result
from tests.support.result_strategies import RESULTS
from tests.support.results_factory import (
    make_device_bound_result,
    make_empty_result,
    make_interrupted_result,
    make_rate,
    make_result,
)

RESULT_MAKERS = [make_result, make_device_bound_result, make_interrupted_result, make_empty_result, make_ranks_result]


@pytest.mark.parametrize("make", RESULT_MAKERS)
def test_round_trip_of_realistic_results(make):
    assert from_json(to_json(make())) == make()


@settings(max_examples=60, deadline=None)
@given(RESULTS)
def test_round_trip_of_any_result(result):
    text = to_json(result)
    assert from_json(text) == result
    assert to_json(from_json(text)) == text


def test_keys_have_the_names_and_the_order_of_the_contract():
    document = json.loads(to_json(make_result()))
    assert " ".join(document) == (
        "schema_version tool created environment pipeline experiments without stages verdict advice "
        "evidence warnings cost"
    )
    assert list(document["tool"]) == ["name", "version"]
    experiment = document["experiments"][-1]
    assert list(experiment) == ["name", "available", "reason", "coupled", "drained", "workers", "serving"]
    assert list(experiment["coupled"]) == ["samples_per_s", "low", "high", "seconds_per_batch", "blocks"]
    assert list(experiment["coupled"]["blocks"][0])[:3] == ["round", "samples", "seconds"]
    assert list(document["without"][0]) == ["stage", "coupled", "workers"]
    assert " ".join(document["stages"][0]) == (
        "name inner outer cost_s_per_batch exposed_s_per_batch exposed_share gain_if_free finding "
        "wall_s_per_batch cpu_s_per_batch possible_gain waiting_share"
    )
    assert list(document["stages"][0]["exposed_share"]) == ["estimate", "low", "high"]
    assert list(document["verdict"])[:6] == [
        *("state", "bottleneck", "contributors", "efficiency", "headroom", "sentence")
    ]
    assert " ".join(document["advice"][0]) == "id stage title why how evidence gain gain_basis"
    assert list(document["warnings"][0]) == ["id", "message"]
    assert list(document["cost"]) == ["seconds", "batches", "samples", "cache_bytes"]


def test_keys_of_a_later_version_are_ignored():
    document = json.loads(to_json(make_result()))
    document["nodes"] = [1, 2]
    document["verdict"]["confidence"] = 0.9
    document["experiments"][0]["coupled"]["blocks"][0]["device_seconds"] = 1.0
    assert from_json(json.dumps(document)) == make_result()


def test_free_form_values_become_those_of_json():
    environment = {
        "count": np.int64(3),
        "rate": np.float32(0.5),
        "nothing": math.nan,
        "shape": (1, np.int32(2)),
        "type": int,
    }
    read = from_json(to_json(make_result(environment=environment))).environment
    assert read == {"count": 3, "rate": 0.5, "nothing": None, "shape": [1, 2], "type": "<class 'int'>"}


def test_a_rate_that_is_not_finite_is_a_fault_of_ours():
    experiment = replace(make_result().experiments[0], coupled=replace(make_rate(0.01), high=math.inf))
    with pytest.raises(BottleneckError, match=r"experiments\[0\]\.coupled\.high is inf") as caught:
        to_json(make_result(experiments=(experiment,)))
    assert caught.value.exit_status == ExitStatus.INTERNAL


# --- refused files ----------------------------------------------------------------------------------------

TEXTS = [
    ("", "is empty"),
    ("  \n ", "is empty"),
    ("hello", "is not JSON"),
    ("<html>", "is not JSON"),
    ("[1, 2]", "the whole document: expected `object`, got `array`"),
    ("null", "expected `object`, got `null`"),
    ("3", "expected `object`, got `int`"),
    ("{}", "has no schema_version"),
    ('{"schema_version": 2}', "has schema_version 2, but this version of bottleneck reads 1"),
    ('{"schema_version": true}', "has schema_version True"),
    ('{"schema_version": "1"}', "has schema_version '1', but"),
    ('{"schema_version": 1}', "object missing required field `tool`"),
    ('{"schema_version": 1e999}', "contains the number 1e999, which is too large"),
    ('{"schema_version": NaN}', "contains NaN"),
    ('{"schema_version": [-Infinity]}', "contains -Infinity"),
    ('{"schema_version": 1' + "0" * 5000 + "}", "a number that is too long"),
    ("[" * 200_000, "nested too deep"),
    ('{"schema_version": 1, "cost": {"seconds": 1, "seconds": 2}}', "contains 'seconds' twice"),
    ('{"kind": "sweep", "schema_version": 1}', "is a sweep, not the result of one diagnosis"),
]


@pytest.mark.parametrize(("text", "said"), TEXTS, ids=[said for _, said in TEXTS])
def test_what_is_no_result_is_refused(text, said):
    with pytest.raises(ResultFileError) as caught:
        from_json(text, source="result.json")
    assert said in caught.value.message
    assert caught.value.message.startswith("result.json ")
    assert_one_sentence_and_remedy(caught.value)


@pytest.mark.parametrize("kept", [0.1, 0.3, 0.6, 0.9, 0.999])
def test_a_truncated_file_is_called_cut_off(kept):
    text = to_json(make_result())
    with pytest.raises(ResultFileError, match=r"cut off|is not JSON") as caught:
        from_json(text[: int(len(text) * kept)])
    assert_one_sentence_and_remedy(caught.value)


WRONG = [
    (("created",), 3, "created: expected `str`, got `int`."),
    (("experiments", 0), 1, "experiments[0]: expected `object`, got `int`."),
    (("experiments", 0, "coupled", "low"), "1", "experiments[0].coupled.low: expected `float`, got `str`."),
    (("experiments", 0, "coupled", "low"), True, "experiments[0].coupled.low: expected `float`, got `bool`."),
    (("experiments", 0, "coupled", "samples_per_s"), -1, "coupled.samples_per_s: expected `float` >= 0"),
    (("experiments", 0, "coupled", "high"), 10**400, "coupled.high: number out of range."),
    (("experiments", 0, "coupled", "blocks", 1, "samples"), 1.5, "blocks[1].samples: expected `int`, got `float`."),
    (("stages", 2, "finding"), "maybe", "stages[2].finding: invalid enum value 'maybe'."),
    (("stages", 2, "gain_if_free"), 2.0, "stages[2].gain_if_free: expected `object | null`, got `float`."),
    (("verdict", "contributors"), "load", "verdict.contributors: expected `array`, got `str`."),
    (("advice", 0, "evidence"), None, "advice[0].evidence: expected `object`, got `null`."),
    (("advice", 0, "gain_basis"), "9" * 3000, "advice[0].gain_basis: invalid enum value '999"),
    (("ranks",), {}, "ranks: expected `array`, got `object`."),
    (("ranks", 3, "rank"), -1, "ranks[3].rank: expected `int` >= 0."),
    (("cost", "cache_bytes"), 2**53 + 1, "cost.cache_bytes: expected `int` <= 9007199254740992."),
]


@pytest.mark.parametrize(("path", "value", "said"), WRONG, ids=[said for *_, said in WRONG])
def test_a_wrong_value_is_refused_with_its_place(path, value, said):
    document = json.loads(to_json(make_ranks_result()))
    parent = document
    for key in path[:-1]:
        parent = parent[key]
    parent[path[-1]] = value
    with pytest.raises(ResultFileError) as caught:
        from_json(json.dumps(document))
    assert said in caught.value.message
    assert_one_sentence_and_remedy(caught.value)


def test_every_key_that_the_contract_promises_is_needed():
    complete = json.loads(to_json(make_result()))
    optional = {"batches", "first_half_seconds", "workers", "further_rounds", "wall_s_per_batch", "cpu_s_per_batch"}
    optional |= {"queue_before", "queue_after", "device_clock_hz", "collecting_s", "gain", "gain_basis", "serving"}
    optional |= {"epoch_efficiency", "judged_by", "possible_gain", "waiting_share", "loss", "upper_bound"}
    free_form = {"environment", "pipeline", "evidence"}
    seen = 0

    def remove_each(node):
        nonlocal seen
        items = list(node.items()) if isinstance(node, dict) else list(enumerate(node))[:1]
        for key, value in items:
            if isinstance(node, dict) and key not in optional:
                del node[key]
                seen += 1
                with pytest.raises(ResultFileError, match=r"missing required field|no schema_version"):
                    from_json(json.dumps(complete))
                node[key] = value
            if isinstance(value, (dict, list)) and key not in free_form:
                remove_each(value)
        if isinstance(node, dict):  # deleting and adding again changed the order, not the content
            ordered = {key: node[key] for key, _ in items}
            node.clear()
            node.update(ordered)

    remove_each(complete)
    assert seen > 50
    assert from_json(json.dumps(complete)) == make_result()


def test_free_form_parts_may_be_nested_but_not_without_end():
    nested: list = []
    for _ in range(100):
        nested = [nested]
    text = to_json(make_result()).replace('"device": "cuda:0"', f'"device": {json.dumps(nested)}')
    with pytest.raises(ResultFileError, match="environment is nested too deep"):
        from_json(text)


def test_a_text_that_is_too_large_is_refused():
    with pytest.raises(ResultFileError, match="is larger than 64 MiB"):
        from_json(" " * (64 * 2**20 + 1))


def assert_one_sentence_and_remedy(error: ResultFileError) -> None:
    assert error.exit_status == ExitStatus.USAGE
    assert error.message.endswith(".")
    assert "\n" not in str(error)
    assert error.remedy.endswith(".")
    assert len(str(error)) < 400
