"""Growth of the memory of a monitored run, of looks that a process takes each minute."""

import json

import pytest

from bottleneck.analysis.growth import find_growth, growth_sentence, what_grows
from bottleneck.reports.render import render
from bottleneck.results.monitor import Memory, Monitored, Start, as_line

MIB = 1 << 20


def looks(per_minute=2 * MIB, minutes=20, *, worker=0, pid=7, rank=0, at=0.0, noise=0, resident=1.0, **of_minute):
    """Return looks at a process whose memory grows evenly, and other fields as functions of the minute."""
    for minute in range(minutes):
        grown = minute * per_minute + noise * (-1) ** minute
        yield Memory(
            at=at + 60.0 * minute,
            rank=rank,
            worker=worker,
            pid=pid,
            private_bytes=100 * MIB + grown,
            resident_bytes=300 * MIB + int(resident * grown),
            **{name: value(minute) for name, value in of_minute.items()},
        )


def run_of(*processes):
    return Monitored.of(as_line(look) for process in processes for look in process)


def test_even_growth_is_told_by_the_hour():
    (growth,) = find_growth(run_of(looks(noise=MIB)))
    assert growth.bytes_per_hour.low <= 120 * MIB <= growth.bytes_per_hour.high
    assert growth.bytes_per_hour.high - growth.bytes_per_hour.low < 20 * MIB
    assert growth.private_bytes == pytest.approx(138 * MIB, abs=MIB)


@pytest.mark.parametrize(
    "process",
    [
        looks(per_minute=0, noise=20 * MIB),
        looks(per_minute=MIB // 2),  # 30 MiB an hour
        looks(minutes=5),
        (look for look in looks() if look.at < 120),
    ],
    ids=["noise", "little", "short", "start"],
)
def test_what_may_be_nothing_is_not_told(process):
    run = run_of(process)
    assert find_growth(run) == []
    assert growth_sentence(run, []) == ""


def test_a_cache_that_fills_and_ends_is_no_growth():
    filling = list(looks(per_minute=50 * MIB, minutes=3))
    full = list(looks(per_minute=0, minutes=20, at=180.0))
    assert find_growth(run_of([*filling, *full])) == []


def test_a_worker_that_has_ended_is_forgotten():
    run = run_of(looks(minutes=10), looks(per_minute=0, minutes=15, at=600.0, pid=8))
    assert find_growth(run) == []


def test_a_validation_between_two_looks_does_not_hide_growth():
    training = list(looks(minutes=60))
    validations = [next(looks(pid=100 + minute, at=60.0 * minute + 30)) for minute in range(0, 60, 6)]
    run = run_of(sorted([*training, *validations], key=lambda look: look.at))
    assert [growth.pid for growth in find_growth(run)] == [7]


def test_pages_that_only_the_main_process_still_uses_are_no_growth():
    assert find_growth(run_of(looks(worker=None, resident=0.0))) == []


def test_a_container_that_was_large_from_the_start_is_not_blamed():
    seen = {
        "grown": lambda minute: {"dataset.paths": 1_000_001} if minute > 2 else {},
        "grown_bytes": lambda minute: {"dataset.paths": 60} if minute > 2 else {},
    }
    (growth,) = find_growth(run_of(looks(**seen)))
    assert growth.kind == "other"


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        (
            {
                "grown": lambda minute: {"dataset.seen": 10 + 100 * minute, "dataset.log": 1000 * minute},
                "grown_bytes": lambda minute: {"dataset.seen": 2 * MIB * minute, "dataset.log": 8000 * minute},
            },
            "dataset.seen: 210 to 1,910 entries",
        ),
        (
            {"grown": lambda minute: {"the cache of job.decode": 10 * minute}},
            "the cache of job.decode: 20 to 190 entries",
        ),
        (
            {
                "grown": lambda minute: {"dataset.log": 1000 * minute},
                "grown_bytes": lambda minute: {"dataset.log": 8000 * minute},
            },
            "memory outside Python objects, such as a library's",
        ),
        ({"resident": 0.1}, "copies of pages that it shared with the main process"),
        ({"python_blocks": lambda minute: 40_000 * minute}, "Python objects, in no container that was seen to grow"),
        ({}, "memory outside Python objects, such as a library's"),
    ],
    ids=["container", "cache", "log", "copies", "objects", "other"],
)
def test_what_grows_is_named(fields, told):
    (growth,) = find_growth(run_of(looks(**fields)))
    assert what_grows(growth) == told


def test_the_report_sums_the_workers_and_says_how_long_memory_lasts():
    main = looks(per_minute=0, worker=None, pid=1, available_bytes=lambda _: 24 * 240 * MIB)
    run = run_of(main, looks(), looks(worker=1, pid=8))
    said = growth_sentence(run, find_growth(run))
    assert said == (
        "The memory of 2 workers grows by 240 MiB an hour (240 MiB to 240 MiB); the remaining 5.62 GiB will last "
        "24 hours."
    )
    text = render(run, "text")
    assert said in " ".join(text.split())
    assert "worker 1" in text
    assert [one["bytes_per_hour"] is None for one in json.loads(render(run, "json"))["memory"]] == [True, False, False]


def test_each_machine_has_memory_of_its_own():
    starts = [Start(at=0.0, rank=rank, host=f"node{rank}") for rank in range(2)]
    mains = [
        looks(
            worker=None,
            pid=10 + rank,
            rank=rank,
            python_blocks=lambda minute: 40_000 * minute,
            available_bytes=lambda _, rank=rank: (1 + rank) * 1200 * MIB,
        )
        for rank in range(2)
    ]
    run = run_of(starts, *mains)
    assert growth_sentence(run, find_growth(run)) == (
        "The memory of 2 main processes grows by 240 MiB an hour (240 MiB to 240 MiB); the remaining 1.17 GiB will "
        "last 10 hours."
    )


def test_a_process_beside_the_fastest_is_left_out():
    run = run_of(looks(per_minute=40 * MIB), looks(worker=None, pid=1, per_minute=MIB))
    assert [growth.worker for growth in find_growth(run)] == [0]


def test_memory_that_does_not_grow_is_told_in_a_line():
    text = render(run_of(looks(per_minute=0)), "text")
    assert "Memory that is not shared, at the last look: 100 MiB in 1 process." in " ".join(text.split())
