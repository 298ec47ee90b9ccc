"""Parts of the bench are kept by themselves, and shown together."""

from dataclasses import replace

import pytest
from click.testing import CliRunner

from benchmarks import bench, kept
from benchmarks.checks import Check
from benchmarks.kept import Part, merged, read, to_markdown, write

VERDICTS = Part(
    "verdicts", "2026-01-02", {"cores": "2", "steady": "0.7 ms"}, (("Planted", "| a |"), ("More", "| b |")),
    (Check("right", "all", "21 | 21", held=True),), "revision a1",
)  # fmt: skip
SPEED = Part(
    "speed",
    "2026-01-03",
    {"cores": "2", "steady": "1.2 ms"},
    (("Time", "| c |"),),
    (Check("time", "60 s", "70", False, ("slow_load: 70 s",)),),
    "revision b2",
)
ORDER = ("verdicts", "speed")


def test_a_part_taken_again_takes_the_place_of_the_old_one():
    again = replace(VERDICTS, taken="2026-02-01")
    assert merged([VERDICTS, SPEED], again, ORDER) == [again, SPEED]
    assert merged([SPEED], VERDICTS, ORDER) == [VERDICTS, SPEED]


def test_parts_are_read_as_they_were_written(tmp_path):
    path = tmp_path / "results.json"
    assert read(path) == []
    write(path, [VERDICTS, SPEED])
    assert read(path) == [VERDICTS, SPEED]
    assert (tmp_path / "RESULTS.md").read_text() == to_markdown([VERDICTS, SPEED])


def test_the_page_says_when_each_part_was_taken_and_what_all_share_once():
    page = to_markdown([VERDICTS, SPEED])
    assert page.count("| cores") == 1
    assert "Taken on 2026-01-02 with revision a1; steady 0.7 ms." in page
    assert "Taken on 2026-01-03 with revision b2; steady 1.2 ms." in page
    assert page.count("Taken on") == 2
    assert page.index("**missed**") < page.index("## Planted") < page.index("## Time")


def test_only_what_was_run_is_kept_anew(tmp_path, monkeypatch):
    path = tmp_path / "results.json"
    monkeypatch.setattr(bench, "RESULTS", path)
    monkeypatch.setattr(bench, "describe_steadiness", lambda: "steady")
    monkeypatch.setattr(bench, "PARTS", {
        "verdicts": lambda report, quick: report.add("Planted", "| new |", VERDICTS.checks),
        "speed": lambda report, quick: pytest.fail("not asked for"),
    })  # fmt: skip
    write(path, [VERDICTS, SPEED])
    result = CliRunner().invoke(bench.main, ["--part", "verdicts"])
    assert result.exit_code == 0, result.output
    first, second = read(path)
    assert first.sections == (("Planted", "| new |"),)
    assert second == SPEED
    assert CliRunner().invoke(bench.main, ["--part", "verdicts", "--quick"]).exit_code == 0
    assert CliRunner().invoke(bench.main, ["--part", "nothing"]).exit_code == 2


def test_a_missed_bar_is_the_exit_status(tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "RESULTS", tmp_path / "results.json")
    monkeypatch.setattr(bench, "describe_steadiness", lambda: "steady")
    monkeypatch.setattr(bench, "PARTS", {"speed": lambda report, quick: report.add("Time", "| c |", SPEED.checks)})
    result = CliRunner().invoke(bench.main, [])
    assert result.exit_code == 1
    assert "Missed: time" in result.output


def test_the_results_in_the_tree_are_those_that_are_kept():
    parts = kept.read(bench.RESULTS)
    assert {part.name for part in parts} <= set(bench.PARTS)
    page = bench.RESULTS.with_name("RESULTS.md").read_text(encoding="utf-8")
    assert page == to_markdown(parts, list(bench.PARTS))
