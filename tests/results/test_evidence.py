"""The border of the evidence: known keys come in with their type, others are refused with their place."""

from __future__ import annotations

import json
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path

import pytest

from bottleneck.errors import ResultFileError
from bottleneck.results import evidence
from bottleneck.results.evidence import Evidence, Reads, TensorSeen
from bottleneck.results.json import from_json, load, plain, to_json
from tests.support.no_longer_read import without_what_nobody_reads
from tests.support.results_factory import make_result

SAVED = sorted((Path(__file__).parent.parent / "saved").glob("v1-*.json"))
KINDS = [kind for kind in vars(evidence).values() if is_dataclass(kind)]


def from_file(seen):
    document = json.loads(to_json(make_result()))
    document["evidence"] = seen
    return from_json(json.dumps(document), source="r.json").evidence


@pytest.mark.parametrize("path", SAVED, ids=lambda path: path.stem)
def test_what_was_saved_before_is_said_to_the_letter(path):
    before, after = json.loads(path.read_bytes())["evidence"], json.loads(to_json(load(path)))["evidence"]
    without_what_nobody_reads(before)

    def unsaid(old, new):
        """Yield the entries that only the new one has."""
        if isinstance(old, dict):
            assert old.keys() <= new.keys()
            yield from (value for key, value in new.items() if key not in old)
            for key, value in old.items():
                yield from unsaid(value, new[key])
        elif isinstance(old, list):
            for one, other in zip(old, new, strict=True):
                yield from unsaid(one, other)
        else:
            assert (old, type(old)) == (new, type(new))

    assert all(value in (None, []) for value in unsaid(before, after))


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        ([], "evidence: expected `object`, got `array`"),
        ({"stalls": 3}, "evidence.stalls: expected `object`, got `int`"),
        ({"first_batch_s": "soon"}, "evidence.first_batch_s: expected `int | float | null`, got `str`"),
        ({"first_batch_s": True}, "evidence.first_batch_s: expected `int | float | null`, got `bool`"),
        ({"wait_s": {"p50": [1]}}, "evidence.wait_s.p50: expected `int | float | null`, got `array`"),
        ({"stalls": {"count": -1}}, "evidence.stalls.count: expected `int` >= 0"),
        ({"stalls": {"count": 1.5}}, "evidence.stalls.count: expected `int | null`, got `float`"),
        ({"transforms": [{}, {"name": 3}]}, "evidence.transforms[1].name: expected `str | null`, got `int`"),
        ({"transforms": [None]}, "evidence.transforms[0]: expected `object`, got `null`"),
        ({"payload": {"bytes": 10**400}}, "evidence.payload.bytes: "),
        ({"payload": {"bytes": 2**60}}, "evidence.payload.bytes: expected `int` <= 9007199254740992"),
        ({"reads": {"missing": [1, {}]}}, "evidence.reads.missing[0]: expected `str`, got `int`"),
        ({"cold": {"verified": 1}}, "evidence.cold.verified: expected `bool | null`, got `int`"),
        ({"model": {"device_capability": "8.0"}}, "evidence.model.device_capability: expected `array"),
        ({"ranks": {"world": -1}}, "evidence.ranks.world: expected `int` >= 0"),
        ({"ranks": {"straggler": {"rank": 1, "host": "a"}}}, "evidence.ranks.straggler: object missing"),
        ({"ranks": {"sync": {"gain_if_free": 2}}}, "evidence.ranks.sync.gain_if_free: expected `object | null`"),
        ({"\ud800": 1}, "contains a key that is not text"),
    ],
)
def test_a_value_of_another_type_is_refused_with_its_place(seen, said):
    with pytest.raises(ResultFileError) as caught:
        from_file(seen)
    assert caught.value.message.startswith(f"r.json is not a valid result: {said}" if "evidence" in said else "r.json ")
    assert said in caught.value.message
    assert caught.value.message.endswith(".")


def test_keys_of_a_later_version_are_ignored_and_nulls_are_not_known():
    assert from_file({"stalls": None, "later": {"a": [1]}, "reads": {"also": 1, "label": None}}) == Evidence()


def test_what_is_not_known_is_null_or_left_out():
    assert plain(Evidence(), "evidence") == {
        "receiving_s_per_batch": None, "loop_s_per_batch": None, "reads": None, "utilisation": None,
    }  # fmt: skip
    assert plain(Reads(label="none"), "reads")["storage_bytes_per_sample"] is None
    assert plain(TensorSeen(), "tensor") == {"path": None, "shape": [], "dtype": None, "bytes": None}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_part_can_be_unknown_but_for_what_makes_a_row(kind):
    needed = {field.name for field in fields(kind) if field.default is field.default_factory is MISSING}
    rows = {
        "Interval": {"estimate", "low", "high"},
        "Straggler": {"rank", "host", "device"},
        "SourcePlace": {"name", "file", "line", "text", "begin", "end"},
    }
    assert needed == rows.get(kind.__name__, set())
