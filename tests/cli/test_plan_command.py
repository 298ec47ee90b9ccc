"""`bottleneck plan`: its options, its formats, and what it refuses."""

import json
from dataclasses import replace

import pytest

from bottleneck.analysis.plan.plan import Asked, plan
from bottleneck.cli.main import run
from bottleneck.reports.plan import draw
from bottleneck.results.json import save
from bottleneck.results.records import Interval
from tests.support.results_factory import make_plannable_result, make_result

ASKED = ["--gpus", "8", "--cores", "32", "--storage", "2GB/s", "--gpu-hour-price", "2.5", "--core-hour-price", "0.05"]


@pytest.fixture
def saved(tmp_path):
    save(make_plannable_result(), tmp_path / "result.json")
    save(make_result(), tmp_path / "bare.json")
    (tmp_path / "empty.json").write_text("")
    (tmp_path / "folder.json").mkdir()
    text = (tmp_path / "result.json").read_text()
    (tmp_path / "newer.json").write_text(text.replace('"schema_version": 1', '"schema_version": 2'))
    return tmp_path


@pytest.mark.parametrize("form", ["text", "markdown", "html", "json"])
def test_a_plan_has_every_format(saved, form, capsys):
    assert run(["plan", str(saved / "result.json"), *ASKED, "--format", form]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert "cores per GPU to keep its device busy; there are 4 per GPU." in " ".join(shown.out.split())
    assert ("<polyline" in shown.out) == (form == "html")


def test_its_json_says_what_it_is_and_is_no_result(saved, capsys):
    target = saved / "plan.json"
    assert run(["plan", str(saved / "result.json"), *ASKED, "--format", "json", "-o", str(target)]) == 0
    document = json.loads(target.read_text())
    assert (document["schema_version"], document["kind"]) == (1, "plan")
    assert document["machine"]["gpus"] == 8
    assert run(["report", str(target)]) == run(["plan", str(target)]) == 2
    assert "is a plan, not the result of one diagnosis" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["bare.json"], "Error: bare does not show the CPU time of its processes. Measure it again"),
        (["nowhere.json"], "There is no file"),
        (["empty.json"], "empty.json is empty"),
        (["folder.json"], "is a directory"),
        (["newer.json"], "has schema_version 2, but this version of bottleneck reads 1"),
        *((["result.json", "--cores", cores], "is not a number from 0.01") for cores in ("none", "0", "1e308", "nan")),
        *((["result.json", "--device-speed", speed], "is not a factor from") for speed in ("-1", "inf", "1e308")),
        *((["result.json", f"--{what}-hour-price", "1e308"], "is not a price above zero") for what in ("gpu", "core")),
        *((["result.json", "--gpus", gpus], f"{gpus} is not in the range") for gpus in ("0", "100000000")),
        (["result.json", "--storage", "fast"], "is not an amount of memory"),
        ([], "Missing argument"),
    ],
)
def test_what_cannot_be_planned_is_refused_in_a_sentence(saved, arguments, said, capsys):
    given = [str(saved / argument) if argument.endswith(".json") else argument for argument in arguments]
    assert run(["plan", *given]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert said in shown.err
    assert shown.err.count("\n") == 1


def test_the_curve_begins_at_nothing_and_has_its_band_around_it():
    shares = Interval(0.5, 0.4, 0.6), Interval(1.0, 0.9, 1.0)
    machine = plan([make_plannable_result()], ["it"], Asked()).machine
    drawn = draw([replace(machine, cores=cores, efficiency=share) for cores, share in zip((2, 4), shares, strict=True)])
    assert drawn.line == "60.0,230.0 380.0,120.0 700.0,10.0"
    assert len(drawn.band.split()) == 6
    assert [name for _, _, name in drawn.ticks] == ["2", "4", "50 %", "100 %"]
