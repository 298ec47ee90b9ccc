"""Functions are ranked by what they take by themselves, and told apart by the stage they work for."""

import pytest

from bottleneck.analysis.advice.hotspots import MOST_FUNCTIONS, find_hotspots, summarise_profile
from bottleneck.results.encoding import plain
from bottleneck.results.stacks import Frame, Stack, StackProfile, WorkerStacks

GET, READ, FLIP = Frame("get", "data.py", 1), Frame("read", "data.py", 9), Frame("flip", "aug.py", 4)


def profile_of(*stacks, more=()):
    return StackProfile("py-spy", 100, 2.0, (WorkerStacks(0, stacks), WorkerStacks(1, tuple(more))))


def test_own_time_is_that_of_the_innermost_function_over_all_workers():
    profile = profile_of(
        Stack((GET, READ), "load", 30, 5), Stack((GET,), "load", 10, 10), more=[Stack((GET, READ), "load", 60, 5)]
    )
    first, second = find_hotspots(profile)
    assert (first.function, first.own_share) == ("read", 0.9)
    assert (second.function, second.own_share) == ("get", 0.1)
    assert first.waiting_share == pytest.approx(1 - 10 / 90)
    assert second.waiting_share == 0.0


def test_waiting_is_not_told_where_it_is_unknown_or_of_a_few_samples():
    few, unknown = Stack((READ,), "load", 3, 0), Stack((FLIP,), "load", 90, None)
    assert [spot.waiting_share for spot in find_hotspots(profile_of(few, unknown))] == [None, None]


def test_a_second_pass_that_saw_more_than_the_first_is_no_negative_waiting():
    [spot] = find_hotspots(profile_of(Stack((READ,), "load", 20, 25)))
    assert spot.waiting_share == 0.0


def test_a_function_that_works_for_two_stages_has_two_rows():
    profile = profile_of(Stack((READ,), "load", 20, 0), Stack((GET, READ), "augment", 10, 0))
    assert [(spot.stage, spot.function) for spot in find_hotspots(profile)] == [("load", "read"), ("augment", "read")]


def test_stages_that_are_not_measured_apart_are_those_of_fetch():
    profile = profile_of(Stack((READ,), "load", 20, 0), Stack((FLIP,), "collate", 10, 0), Stack((GET,), None, 5, 0))
    found = find_hotspots(profile, ("compute", "collate", "fetch"))
    assert [spot.stage for spot in found] == ["fetch", "collate", None]


def test_what_only_the_second_pass_saw_has_no_row():
    assert len(find_hotspots(profile_of(Stack((READ,), "load", 5, 5), Stack((FLIP,), "load", 0, 2)))) == 1


def test_native_code_without_a_name_counts_for_its_caller():
    nameless = Frame("0x7fc1102a3f16", "libc.so.6", None)
    [spot] = find_hotspots(profile_of(Stack((GET, READ, nameless), "load", 20, 0)))
    assert (spot.function, spot.file, spot.line) == ("read", "data.py", 9)


def test_long_tables_end():
    stacks = [Stack((Frame(f"f{n}", "a.py", n),), "load", 1 + n, 0) for n in range(200)]
    found = summarise_profile(profile_of(*stacks)).functions
    assert len(found) == MOST_FUNCTIONS
    assert found[0].function == "f199"


def test_the_evidence_holds_the_keys_that_are_promised():
    found = summarise_profile(profile_of(Stack((READ,), "load", 20, 5)))
    assert plain(found, "profile") == {
        "sampler": "py-spy",
        "rate_hz": 100,
        "seconds": 2.0,
        "samples": 20,
        "processes": 2,
        "in_workers": True,
        "functions": [
            {"function": "read", "file": "data.py", "line": 9, "own_share": 1.0, "waiting_share": 0.75, "stage": "load"}
        ],
        "stacks": {
            "frames": [{"function": "read", "file": "data.py", "line": 9}],
            "seen": [{"frames": "0", "stage": "load", "samples": 20, "computing": 5}],
            "left_out_samples": 0.0,
        },
    }
