"""Next steps for a program: patches that apply, commands that prove advice, and an end."""

from __future__ import annotations

import subprocess
from dataclasses import replace

import pytest

from bottleneck.analysis.edits.next_steps import with_next
from bottleneck.results.files import read_source
from bottleneck.results.json import from_json, to_json
from bottleneck.results.records import Advice
from tests.support.rank_results import make_ranks_result
from tests.support.results_factory import make_device_bound_result, make_result

DIAGNOSE = ("bottleneck", "diagnose", "job.py:build")
AGAIN = ("bottleneck", "diagnose", "--json", "-", "job.py:build")
SOURCE = "def loader():\n    return DataLoader(\n        data, num_workers=2,\n        shuffle=True)"


def advice(id="more-workers", **changes):
    evidence = {"proposed": {"num_workers": 8}, "num_workers": 2}
    fields = {"stage": "load", "title": "t", "why": "w", "how": "DataLoader(..., num_workers=8)", "evidence": evidence}
    return Advice(id=id, **{**fields, **changes})


def result(*items, **changes):
    base = make_result()
    fields = {"pipeline": {**base.pipeline, "target": "job.py:build"}, "advice": items or (advice(),)}
    return replace(base, **{**fields, **changes})


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("given", "proposed", "after", "note"),
    [
        ("num_workers=2", 8, "num_workers=8", ""),
        ("num_workers=2", 0, "num_workers=0", ""),
        ("num_workers=args.j", 8, "num_workers=8", "# num_workers=8 replaces args.j: if that is an option of"),
        ("num_workers=2, timeout=9, prefetch_factor=4, persistent_workers=True", 0,
         "num_workers=0, timeout=0, prefetch_factor=None, persistent_workers=False", ""),
    ],
)  # fmt: skip
def test_an_edit_of_known_lines_is_a_patch_that_git_applies(given, proposed, after, note, end, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = SOURCE.replace("num_workers=2", given)
    (tmp_path / "job.py").write_bytes(text.replace("\n", end).encode())
    line = text.split("\n")[2]
    where = {"file": "job.py", "line": 3, "text": line}
    spans = {part.partition("=")[0]: (line.index(part), line.index(part) + len(part)) for part in given.split(", ")}
    places = [{**where, "name": name, "begin": first, "end": last} for name, (first, last) in spans.items()]
    more = advice(evidence={"proposed": {"num_workers": proposed}})
    told = with_next(make_result(evidence={"source": places}, advice=(more,)), (), read_source).advice[0]
    assert told.place == "job.py:3"
    assert told.patch.startswith(note or "---")
    subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=told.patch.encode(), check=True)
    assert (tmp_path / "job.py").read_bytes().decode() == text.replace(given, after).replace("\n", end)
    (tmp_path / "job.py").write_text("another")
    assert with_next(make_result(evidence={"source": places}, advice=(more,)), (), read_source).advice[0].patch is None
    assert with_next(result(), (), read_source).advice[0].patch is None  # its place is unknown


@pytest.mark.parametrize(
    ("again", "items", "proof"),
    [
        (DIAGNOSE, advice(), ("bottleneck", "tune", "job.py:build", "--try", "num_workers", "--json", "-")),
        ((*DIAGNOSE, "--set", "x=1"), advice(), (*AGAIN, "--set", "x=1", "--set", "num_workers=8")),
        (DIAGNOSE, advice("costliest-line", evidence={}), AGAIN),
        ((*DIAGNOSE, "--device", "cpu"), advice("uneven-samples", evidence={}), (*AGAIN, "--device", "cpu")),
        (DIAGNOSE, advice("pin", evidence={"proposed": {"pin_memory": True}}), (*AGAIN, "--set", "pin_memory=true")),
        (("bottleneck", "run", "train.py", "-e", "1"), advice("costliest-line", evidence={}),
         ("bottleneck", "run", "--json", "-", "train.py", "-e", "1")),
        (("bottleneck", "run", "-m", "a.train", "-e", "1"), advice(),
         ("bottleneck", "tune", "--try", "num_workers", "--json", "-", "-m", "a.train", "-e", "1")),
        (DIAGNOSE, advice("workers-cannot-help", evidence={}), ()),
        ((), advice(), ()),
    ],
)  # fmt: skip
def test_each_piece_of_advice_has_the_command_that_proves_it(again, items, proof):
    told = with_next(result(items), again, read_source)
    assert told.advice[0].prove == proof
    assert told.next[: len(proof) and 1] == ((proof,) if proof else ())


def test_the_commands_to_run_next_are_proofs_and_then_the_diagnosis_again():
    told = with_next(
        result(advice(), advice("costliest-line", evidence={}), advice("pin-memory", evidence={})),
        DIAGNOSE,
        read_source,
    )
    tune = ("bottleneck", "tune", "job.py:build", "--try")
    assert told.next == ((*tune, "num_workers", "--json", "-"), AGAIN, (*tune, "pin_memory", "--json", "-"))
    assert from_json(to_json(told)) == told


def test_there_is_an_end_a_longer_look_and_nothing_for_ranks():
    assert with_next(make_device_bound_result(), DIAGNOSE, read_source).next == ()
    longer, undecided = advice("measure-longer", how="--budget 90s"), replace(make_result().verdict, state="undecided")
    unsure = result(longer, advice(), verdict=undecided)
    assert with_next(unsure, DIAGNOSE, read_source).next == (("bottleneck", "diagnose", "--budget", "90s", *AGAIN[2:]),)
    assert with_next(replace(unsure, advice=()), DIAGNOSE, read_source).next == (AGAIN,)
    assert with_next(make_ranks_result(), DIAGNOSE, read_source).next == ()
    every_change = ("bottleneck", "tune", "--safe", "--json", "-", "job.py:build")
    assert with_next(replace(result(), advice=()), DIAGNOSE, read_source).next == (every_change,)
