"""The files of a profile parse, are safe to open and hold the right shares; a bad folder is refused early."""

import json
import os
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from bottleneck.errors import UsageError
from bottleneck.reports.charts.collapsed import render_collapsed
from bottleneck.reports.charts.flamegraph import MOST_BOXES, render_flamegraph
from bottleneck.reports.charts.speedscope import render_speedscope
from bottleneck.reports.writers.files import check_folder, write_profile
from bottleneck.results.stacks import Frame, Stack, StackProfile, WorkerStacks

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = Frame("<lambda> & \"'\x1b[31m\ud800;", "<script>alert(1)</script>]]>.py", 3)
GET, READ = Frame("Photos.__getitem__", "data.py", 1), Frame("read", "data.py", 9)
STACKS = (Stack((GET, READ), "load", 60, 6), Stack((GET,), "load", 30, 30), Stack((GET, HOSTILE), None, 10, None))


def profile_of(stacks=STACKS, workers=2):
    return StackProfile("py-spy", 100, 2.0, tuple(WorkerStacks(number, stacks) for number in range(workers)))


def boxes(svg):
    root = ElementTree.fromstring(svg)
    return [(box.get("data-label"), box) for box in root.iter(f"{SVG}g") if "box" in box.get("class", "").split()]


def test_every_function_has_a_box_as_wide_as_its_share():
    found = {label: float(box.get("data-width")) for label, box in boxes(render_flamegraph(STACKS, "All workers"))}
    assert found["all"] == 1.0
    assert found["Photos.__getitem__ (data.py:1)"] == 1.0
    assert found["read (data.py:9)"] == pytest.approx(0.6)
    assert len(found) == 4


def test_boxes_stand_on_their_callers():
    placed = {label: (float(b.get("data-left")), float(b.get("data-width")), int(b.get("data-depth")))
              for label, b in boxes(render_flamegraph(STACKS, ""))}  # fmt: skip
    left, width, depth = placed["read (data.py:9)"]
    assert depth == 2
    assert 0 <= left <= left + width <= 1 + 1e-6


def test_it_is_readable_without_script_and_has_tooltips():
    [box] = [box for label, box in boxes(render_flamegraph(STACKS, "")) if label == "read (data.py:9)"]
    assert box.find(f"{SVG}text").text == "read (data.py:9)"
    assert box.find(f"{SVG}title").text == "read (data.py:9)\n60.0 % of the samples, 90 % of that waiting"


def test_hostile_names_stay_text():
    svg = render_flamegraph(STACKS, "<script>", "]]>")
    root = ElementTree.fromstring(svg)
    assert len(list(root.iter(f"{SVG}script"))) == 1
    assert svg.count("<script") == 1
    assert any("<script>alert(1)</script>" in label for label, _ in boxes(svg))


def test_nothing_is_loaded_from_elsewhere():
    svg = render_flamegraph(STACKS, "").replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert "http" not in svg
    assert "href" not in svg


@pytest.mark.parametrize("stacks", [(), (Stack((GET,), None, 0, 3),)])
def test_an_empty_flamegraph_is_still_one(stacks):
    assert boxes(render_flamegraph(stacks, "Worker 0")) == []


def test_of_very_many_boxes_the_widest_are_drawn_each_on_its_caller():
    stacks = [Stack((GET, Frame(f"f{n}", "", None), *(Frame(f"f{n}.{k}", "", None) for k in range(140))), None, 1, 1)
              for n in range(100)]  # fmt: skip
    found = [(int(box.get("data-depth")), label) for label, box in boxes(render_flamegraph(stacks, ""))]
    assert len(found) == MOST_BOXES
    names = {label for _, label in found}
    assert all(f"f{n}" in names for n in range(100))
    assert all(f"{label.partition('.')[0]}.{int(label.partition('.')[2]) - 1}" in names
               for depth, label in found if depth > 3)  # fmt: skip


def test_deep_recursion_is_drawn_up_to_a_depth():
    found = boxes(render_flamegraph([Stack((GET,) * 5000, None, 1, 1)], ""))
    assert 100 < len(found) < 200


def test_speedscope_gets_what_its_schema_requires():
    document = json.loads(render_speedscope(profile_of()))
    assert document["$schema"].endswith("file-format-schema.json")
    names = [frame["name"] for frame in document["shared"]["frames"]]
    assert names[:2] == ["Photos.__getitem__", "read"]
    for profile in document["profiles"]:
        assert {"type", "name", "unit", "startValue", "endValue", "samples", "weights"} <= set(profile)
        assert (profile["type"], profile["unit"]) == ("sampled", "seconds")
        assert len(profile["samples"]) == len(profile["weights"])
        assert profile["endValue"] == pytest.approx(sum(profile["weights"])) == pytest.approx(1.0)
        assert all(0 <= index < len(names) for sample in profile["samples"] for index in sample)


def test_collapsed_stacks_are_one_a_line():
    lines = render_collapsed(profile_of()).splitlines()
    assert lines[0] == "worker 0;Photos.__getitem__ (data.py:1);read (data.py:9) 60"
    assert len(lines) == 6
    assert all(len(line.split(";")) in (2, 3) and line.rpartition(" ")[2].isdigit() for line in lines)


def test_all_files_are_written(tmp_path):
    written = write_profile(profile_of(), tmp_path / "new" / "folder")
    names = ["workers.svg", "worker-0.svg", "worker-1.svg", "profile.speedscope.json", "stacks.txt"]
    assert [path.name for path in written] == names
    assert sorted(os.listdir(tmp_path / "new" / "folder")) == sorted(names)
    for path in written[:3]:
        ElementTree.parse(path)


def test_without_workers_the_files_name_the_main_process(tmp_path):
    for path in write_profile(replace(profile_of(workers=1), in_workers=False), tmp_path)[:2]:
        assert "The main process, which loads the data" in path.read_text()
        assert "orker 0" not in path.read_text()


def test_home_directories_do_not_show(tmp_path):
    private = Frame("read", "/home/ann/data.py", 1)
    for path in write_profile(profile_of((Stack((private,), None, 5, 5),)), tmp_path):
        assert "ann" not in path.read_text()


def test_a_folder_that_can_be_made_is_accepted_and_not_made_yet(tmp_path):
    check_folder(tmp_path / "a" / "b")
    check_folder(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("file", "it is a file"),
        ("file/sub", "is a file"),
        ("", "name is empty"),
        ("x" * 300, "too long"),
        ("a\0b", "null"),
    ],
)
def test_a_bad_folder_is_refused(tmp_path, monkeypatch, name, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=words):
        check_folder(name)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_refused(tmp_path):
    (tmp_path / "closed").mkdir(mode=0o500)
    with pytest.raises(UsageError, match="permission denied"):
        check_folder(tmp_path / "closed" / "sub")


def test_a_folder_that_went_away_is_told(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="Cannot write the flamegraphs"):
        write_profile(profile_of(), tmp_path / "file")
