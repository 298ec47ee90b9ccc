"""The demo: the order of what it does, the job it builds, its photographs. The measuring is replaced or short."""

import os
from dataclasses import replace

import pytest
from PIL import Image

from bottleneck import demo
from bottleneck.cli.main import run
from bottleneck.demo import CLASSES, cache_folder, draw_photograph, ensure_photographs, is_complete
from bottleneck.errors import ExitStatus, MeasurementError, UsageError
from bottleneck.results.records import Warning
from tests.support.results_factory import make_result


@pytest.fixture(autouse=True)
def no_cache(folder, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))


@pytest.fixture
def few_photographs(monkeypatch, tmp_path):
    """Drawing them is tested elsewhere."""
    made = ensure_photographs(4, parent=tmp_path / "few")
    asked = []

    def ensure(images, width, on_progress):
        asked.append(images)
        on_progress(images, images)
        return made

    monkeypatch.setattr(demo, "ensure_photographs", ensure)
    return asked


def test_it_prints_the_verdict_and_writes_the_report(asked, few_photographs, tmp_path, capsys):
    assert run(["demo"]) == ExitStatus.OK
    out, err = capsys.readouterr()
    assert "Bottleneck: augment, " in out
    assert "Bottleneck: augment" in (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "<!doctype html>" in (tmp_path / "report.html").read_text(encoding="utf-8").lower()
    assert "Wrote report.md" in err
    assert err.rstrip().endswith("bottleneck diagnose myjob.py:build")
    assert few_photographs == [300]
    assert [(options.budget_s, options.restore) for options in asked.options] == [(26.0, False)]


def test_it_does_not_warn_of_a_machine_that_is_not_quiet(asked, few_photographs, tmp_path):
    # Guards: three of four demos ended in advice to close what else runs on this machine.
    found = (Warning("other-load", "Stop them."), Warning("cost-differs-from-clock", "Close them."))
    asked.answer(replace(make_result(), warnings=(*found, Warning("ended-early", "It was interrupted."))))
    run(["demo"])
    report = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "It was interrupted." in report
    assert "Stop them." not in report
    assert "Close them." not in report


def test_its_options_reach_the_measuring(asked, few_photographs, tmp_path):
    options = ["--budget", "1m30s", "--images", "64", "--report", "other.md", "--html", "other.html"]
    assert run(["demo", *options]) == ExitStatus.OK
    assert few_photographs == [64]
    assert asked.options[0].budget_s == 90.0
    assert {path.name for path in tmp_path.glob("*.*")} >= {"other.md", "other.html"}
    assert not (tmp_path / "report.md").exists()


def test_it_overwrites_nothing_that_it_was_not_told_to(asked, few_photographs, tmp_path, capsys):
    for name in ("report.md", "report-2.md", "other.html"):
        (tmp_path / name).write_text("my notes")
    assert run(["demo", "--html", "other.html"]) == ExitStatus.OK
    assert [(tmp_path / name).read_text() for name in ("report.md", "report-2.md")] == ["my notes"] * 2
    assert "Bottleneck: augment" in (tmp_path / "report-3.md").read_text(encoding="utf-8")
    assert "<!doctype html>" in (tmp_path / "other.html").read_text(encoding="utf-8").lower()
    assert "Wrote report-3.md" in capsys.readouterr().err


def test_a_report_that_cannot_be_written_is_refused_before_anything_is_made(few_photographs, capsys):
    assert run(["demo", "--report", "no/such/folder/report.md"]) == ExitStatus.USAGE
    assert "no/such/folder" in capsys.readouterr().err
    assert few_photographs == []


def test_what_was_measured_before_a_failure_is_written(asked, few_photographs, tmp_path, capsys):
    asked.answer(make_result(), MeasurementError("Worker 1 was killed.", "Give it more memory."))
    assert run(["demo"]) == ExitStatus.COULD_NOT_MEASURE
    assert (tmp_path / "report.md").is_file()
    assert "Error: Worker 1 was killed. Give it more memory." in capsys.readouterr().err


def test_too_few_photographs_for_a_batch_are_refused(few_photographs, capsys):
    assert run(["demo", "--images", "8"]) == ExitStatus.USAGE
    assert few_photographs == []


def test_the_job_it_builds_can_be_run(tmp_path):
    from bottleneck.job.checks import check

    folder = ensure_photographs(demo.BATCH_SIZE, parent=tmp_path)
    pipeline = demo.build_demo(folder)
    check(pipeline)
    image, label = pipeline.dataset[0]
    assert image.shape == (3, 128, 128)
    assert label == 0
    assert pipeline.model(image[None].to(pipeline.device)).shape == (1, 4)


@pytest.mark.integration
def test_the_whole_demo(tmp_path, capfd):
    rows = {"compute", "augment", "load"}
    for budget in ("15s", "40s"):  # at length, should others have kept the machine busy
        assert run(["demo", "--images", "64", "--budget", budget]) == ExitStatus.OK
        out, err = capfd.readouterr()
        told = {line.split()[0] for line in out.splitlines() if line.strip()}
        if rows <= told:
            break
    assert rows <= told
    assert "before_augment" in (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "Traceback" not in err


def test_they_are_as_big_as_photographs(tmp_path):
    folder = ensure_photographs(8, parent=tmp_path)
    assert sorted(path.name for path in folder.iterdir()) == sorted(CLASSES)
    for path in folder.glob("*/*.jpg"):
        with Image.open(path) as image:
            assert image.mode == "RGB"
            assert max(image.size) == 500
            # Bytes per pixel: a flat colour has 0.01, white noise 1.
            assert 0.1 < path.stat().st_size / (image.width * image.height) < 0.4


def test_each_picture_is_always_the_same():
    assert draw_photograph(3).tobytes() == draw_photograph(3).tobytes()
    assert draw_photograph(3).tobytes() != draw_photograph(4).tobytes()


def test_an_interrupted_run_leaves_nothing(tmp_path):
    def interrupt(done, total):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ensure_photographs(4, parent=tmp_path, on_progress=interrupt)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_folder_is_made_again(tmp_path):
    folder = ensure_photographs(8, parent=tmp_path)
    next(folder.glob("*/*.jpg")).unlink()
    assert not is_complete(folder, 8)
    ensure_photographs(8, parent=tmp_path)
    assert is_complete(folder, 8)
    assert len(list(tmp_path.iterdir())) == 1


def test_the_cache_folder_follows_xdg(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "torch-bottleneck"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "torch-bottleneck"


def test_a_cache_folder_that_cannot_be_written_is_refused(tmp_path):
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    with pytest.raises(UsageError, match="XDG_CACHE_HOME"):
        ensure_photographs(4, parent=in_the_way)


def test_too_few_images_are_refused(tmp_path):
    with pytest.raises(UsageError, match="--images 300"):
        ensure_photographs(3, parent=tmp_path)
    assert os.listdir(tmp_path) == []
