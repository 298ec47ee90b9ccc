"""The file of events: on a broken disk, and when read."""

import errno
import json

import pytest

from bottleneck.errors import ResultFileError, UsageError
from bottleneck.monitor.file import EventFile, path_of_rank, read_events
from bottleneck.results.monitor import Checkpoint, SlowBatch, Start, Summary, Waits, are_events, as_line


def waits(rank=0, batches=10, at=10.0, loader="0 Photos"):
    return Waits(
        at=at, rank=rank, loader=loader, batches=batches, steps=batches, wait_s=2.5, counts={40: batches}, passed_s=10.0
    )


def slow(seconds, rank=0):
    return SlowBatch(at=5.0, rank=rank, loader="0 Photos", epoch=1, step=3, seconds=seconds)


def test_events_are_appended_one_json_object_a_line(tmp_path):
    told = []
    path = tmp_path / "events.jsonl"
    for number in range(2):
        file = EventFile(path, told.append)
        file.append([Start(at=float(number)), waits()])
        file.close()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["event"] for line in lines] == ["start", "waits"] * 2
    assert not told


def test_a_full_disk_ends_the_writing_with_one_sentence(tmp_path):
    told, room = [], [100]

    def write(descriptor, content):
        if not room:
            raise OSError(errno.ENOSPC, "No space left on device")
        return room.pop()

    file = EventFile(tmp_path / "events.jsonl", told.append, write)
    for _ in range(5):
        file.append([waits(), slow(1.0)])
    assert len(told) == 1
    assert "no space left on device" in told[0]
    assert "The job continues." in told[0]


def test_a_removed_file_ends_the_writing(tmp_path):
    told = []
    file = EventFile(tmp_path / "events.jsonl", told.append)
    file.append([waits()])
    (tmp_path / "events.jsonl").unlink()
    for _ in range(3):
        file.append([waits()])
    assert len(told) == 1
    assert "it was removed" in told[0]
    assert not (tmp_path / "events.jsonl").exists()


def test_a_path_that_cannot_be_written_is_refused(tmp_path):
    with pytest.raises(UsageError, match="Cannot write"):
        EventFile(tmp_path / "nowhere" / "events.jsonl", print)


def test_a_line_that_was_cut_off_costs_only_itself(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_bytes(as_line(waits()) + as_line(slow(1.0))[:-20])
    file = EventFile(path, print)
    file.append([slow(2.0)])
    file.close()
    run = read_events(path)
    assert [batch.seconds for batch in run.worst] == [2.0]
    assert run.unread == 1
    assert sum(one.batches for one in run.waits.values()) == 10


def test_events_of_later_versions_are_left_out(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'{"event":"weather","at":1.0}\n' + as_line(waits()))
    run = read_events(path)
    assert run.unread == 1
    assert run.waits


def test_the_last_run_in_a_file_is_reported(tmp_path):
    path = tmp_path / "events.jsonl"
    first = [Start(at=0.0), waits(batches=50), slow(9.0), Checkpoint(at=1.0, step=1, seconds=1.0)]
    end = Summary(at=9.0, batches=1, passed_s=1.0, wait_s=0.1, p50_s=0.1, p99_s=0.1, longest_s=0.1, ended=True)
    path.write_bytes(b"".join(map(as_line, [*first, end, Start(at=100.0, command=["train.py"]), waits(), slow(1.0)])))
    run = read_events(path)
    assert ([one.batches for one in run.waits.values()], [one.seconds for one in run.worst]) == ([10], [1.0])
    assert (run.ended, run.checkpoints, run.command) == (False, [], ("train.py",))


def test_files_of_other_ranks_are_read_with_the_first(tmp_path):
    path = tmp_path / "events.jsonl"
    for rank in (0, 1, 11):
        place = path_of_rank(path, rank)
        place.write_bytes(b"".join(map(as_line, [Start(at=0.0, rank=rank, world=12), waits(rank), slow(rank, rank)])))
    (tmp_path / "events.rankless.jsonl").write_bytes(as_line(slow(99.0)))
    run = read_events(path)
    assert [rank for rank, _ in run.waits] == [0, 1, 11]
    assert [(one.rank, one.seconds) for one in run.worst] == [(11, 11.0), (1, 1.0), (0, 0.0)]
    assert run.share(run.training) == pytest.approx(0.25)  # 2.5 s of 10 in each


def test_what_is_no_file_is_refused(tmp_path):
    with pytest.raises(ResultFileError, match="Cannot read"):
        read_events(tmp_path / "nothing.jsonl")


@pytest.mark.parametrize(("text", "expected"), [('{"event":"start","at":1}', True), ('{"schema_version": 1}', False)])
def test_a_file_of_events_is_known_by_its_beginning(text, expected):
    assert are_events(text) == expected
