"""A result keeps the heaviest stacks within a bound, says what it left out, and takes nothing from a file on trust."""

from dataclasses import replace

import pytest

from bottleneck.analysis.advice.kept_stacks import LEFT_OUT, MOST_BYTES, keep_stacks, kept_stacks
from bottleneck.errors import ResultFileError
from bottleneck.results.codec import from_json, to_json
from bottleneck.results.decoding import read_evidence
from bottleneck.results.evidence import MOST_ROWS, Evidence, Profile
from bottleneck.results.stacks import DEEPEST, Frame, Stack, StackProfile, WorkerStacks
from tests.support.results_factory import make_result

GET, READ = Frame("Photos.__getitem__", "data.py", 1), Frame("read", "data.py", 9)
LOADING = Stack((GET, READ), "load", 60, 6)


def profile_of(*workers):
    return StackProfile("py-spy", 100, 2.0, tuple(WorkerStacks(n, tuple(stacks)) for n, stacks in enumerate(workers)))


def evidence_of(stacks):
    return Evidence(profile=Profile(stacks=stacks))


def read_stacks(stacks):
    return kept_stacks(read_evidence({"profile": {"stacks": stacks}}))


def many(number):
    """Stacks of long names, the later the lighter."""
    return [
        Stack((GET, Frame(f"function_{n:06}" * 4, f"module_{n}.py", n)), None, number - n, 0) for n in range(number)
    ]


def test_stacks_survive_being_saved():
    result = make_result(evidence=evidence_of(keep_stacks(profile_of([LOADING, Stack((GET,), None, 30, None)]))))
    kept = kept_stacks(from_json(to_json(result)).evidence)
    assert kept.stacks == (LOADING, Stack((GET,), None, 30, None))
    assert kept.left_out_share == 0


def test_the_same_stack_of_all_workers_is_one():
    unknown = replace(LOADING, computing=None)
    assert kept_stacks(evidence_of(keep_stacks(profile_of([LOADING], [LOADING])))).stacks == (
        replace(LOADING, samples=120, computing=12),
    )
    [kept] = kept_stacks(evidence_of(keep_stacks(profile_of([LOADING], [unknown])))).stacks
    assert (kept.samples, kept.computing) == (120, None)


def test_the_heaviest_are_kept_within_the_bound_and_the_share_of_the_rest_is_told():
    stacks = many(2_000)
    kept = keep_stacks(profile_of(stacks))
    saved = to_json(make_result(evidence=evidence_of(kept)))
    bare = to_json(make_result(evidence=evidence_of(keep_stacks(profile_of([])))))
    assert 0.8 * MOST_BYTES < len(saved.encode()) - len(bare.encode()) <= MOST_BYTES
    read = kept_stacks(evidence_of(kept))
    assert list(read.stacks[:-1]) == stacks[: len(read.stacks) - 1]
    assert read.stacks[-1].frames == (LEFT_OUT,)
    assert sum(stack.samples for stack in read.stacks) == sum(stack.samples for stack in stacks)
    assert read.left_out_share == pytest.approx(1 - sum(s.samples for s in read.stacks[:-1]) / (2_000 * 2_001 / 2))


def test_a_bound_holds_for_letters_that_take_many_bytes():
    stacks = [Stack((Frame("\u4e16" * 150, "\ud800" * 150, n),), None, 1, 1) for n in range(500)]
    saved = to_json(make_result(evidence=evidence_of(keep_stacks(profile_of(stacks), most_bytes=20_000))))
    bare = to_json(make_result(evidence=evidence_of(keep_stacks(profile_of([])))))
    assert len(saved.encode()) - len(bare.encode()) <= 20_000


def test_endless_names_and_recursions_are_cut():
    [stack] = kept_stacks(evidence_of(keep_stacks(profile_of([Stack((Frame("f" * 9_000, "p" * 9_000, 1),) * 400,
                                                                    None, 5, 5)])))).stacks  # fmt: skip
    assert len(stack.frames) == DEEPEST
    assert len(stack.frames[0].function) == len(stack.frames[0].file) == 200


def test_nothing_is_kept_of_no_samples():
    assert kept_stacks(evidence_of(keep_stacks(profile_of([Stack((GET,), None, 0, 3)])))) is None
    assert kept_stacks(Evidence()) is None


FRAMES = [{"function": "f", "file": "a.py", "line": 1}]
GOOD = {"frames": "0", "samples": 4}


@pytest.mark.parametrize(
    "nothing", [None, {}, {"frames": "1", "samples": 4}, {"frames": "0", "samples": 0}, {"frames": "0"}]
)
def test_a_stack_of_no_samples_or_of_functions_that_are_not_there_is_left_out(nothing):
    kept = read_stacks({"frames": FRAMES, "seen": [GOOD, *([] if nothing is None else [nothing])]})
    assert kept.stacks == (Stack((Frame("f", "a.py", 1),), None, 4, None),)
    assert kept.left_out_share == 0


@pytest.mark.parametrize(
    "bad",
    [
        7, "0", [], {"frames": "-1", "samples": 4}, {"frames": "", "samples": 4}, {"frames": [0], "samples": 4},
        {"frames": "0 x", "samples": 4}, {"frames": "\u0662", "samples": 4}, {"frames": "0" * 9_000, "samples": 4},
        {"frames": "0 " * 150 + "0", "samples": 4}, {"frames": "0", "samples": -4}, {"frames": "0", "samples": True},
        {"frames": "0", "samples": "4"}, {"frames": "0", "samples": float("inf")}, {"frames": "0", "samples": 10**400},
    ],
)  # fmt: skip
def test_a_stack_that_makes_no_sense_is_refused(bad):
    with pytest.raises(ResultFileError, match=r"profile\.stacks\.seen\[1\]"):
        read_stacks({"frames": FRAMES, "seen": [GOOD, bad]})


def test_a_frame_without_a_name_is_refused():
    with pytest.raises(ResultFileError, match=r"profile\.stacks\.frames\[0\]\.function is missing"):
        read_stacks({"frames": [{}, *FRAMES], "seen": [{"frames": "0 1", "samples": 1}]})


def test_native_code_has_no_line():
    kept = read_stacks({"frames": [{"function": "f", "file": "a.so", "line": None}], "seen": [GOOD]})
    assert kept.stacks[0].frames == (Frame("f", "a.so"),)


def test_more_than_is_ever_written_is_refused():
    deepest = [{"frames": " ".join("0" * DEEPEST), "samples": 1}]
    assert len(read_stacks({"frames": FRAMES, "seen": deepest}).stacks[0].frames) == DEEPEST
    with pytest.raises(ResultFileError, match="seen"):
        read_stacks({"frames": FRAMES, "seen": [GOOD] * (MOST_ROWS + 1)})


def test_a_function_is_kept_once():
    kept = keep_stacks(profile_of([Stack((GET,), None, n + 1, 0) for n in range(50)]))
    assert (len(kept.frames), len(kept.seen)) == (1, 1)
