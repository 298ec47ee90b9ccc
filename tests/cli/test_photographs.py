"""The folder of photographs: complete or not there, the same each time, as hard to decode as real ones."""

import os

import pytest
from PIL import Image

from bottleneck.demo.photographs import (
    CLASSES,
    cache_folder,
    draw_photograph,
    ensure_photographs,
    is_complete,
)
from bottleneck.errors import UsageError


@pytest.fixture
def folder(tmp_path):
    return ensure_photographs(8, parent=tmp_path)


def test_every_class_has_its_folder_of_jpegs(folder):
    assert sorted(path.name for path in folder.iterdir()) == sorted(CLASSES)
    assert len(list(folder.glob("*/*.jpg"))) == 8


def test_torchvision_reads_it(folder):
    from torchvision.datasets import ImageFolder

    images = ImageFolder(folder)
    assert len(images) == 8
    assert sorted({label for _, label in images}) == [0, 1, 2, 3]


def test_they_are_as_big_as_photographs(folder):
    for path in folder.glob("*/*.jpg"):
        with Image.open(path) as image:
            assert image.mode == "RGB"
            assert max(image.size) == 500
            # Bytes per pixel: a flat colour has 0.01, white noise 1.
            assert 0.1 < path.stat().st_size / (image.width * image.height) < 0.4


def test_each_picture_is_always_the_same():
    assert draw_photograph(3).tobytes() == draw_photograph(3).tobytes()
    assert draw_photograph(3).tobytes() != draw_photograph(4).tobytes()


def test_a_second_call_draws_nothing(folder, tmp_path):
    drawn = []
    again = ensure_photographs(8, parent=tmp_path, on_progress=lambda *args: drawn.append(args))
    assert again == folder
    assert drawn == []


def test_progress_is_told_after_each_picture(tmp_path):
    told = []
    ensure_photographs(4, parent=tmp_path, on_progress=lambda done, total: told.append((done, total)))
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_an_interrupted_run_leaves_nothing(tmp_path):
    def interrupt(done, total):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ensure_photographs(4, parent=tmp_path, on_progress=interrupt)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_folder_is_made_again(folder, tmp_path):
    next(folder.glob("*/*.jpg")).unlink()
    assert not is_complete(folder, 8)
    ensure_photographs(8, parent=tmp_path)
    assert is_complete(folder, 8)
    assert len(list(tmp_path.iterdir())) == 1


def test_another_process_that_was_faster_wins(tmp_path):
    def overtake(done, total):
        if done == total:
            ensure_photographs(4, parent=tmp_path)

    made = ensure_photographs(4, parent=tmp_path, on_progress=overtake)
    assert is_complete(made, 4)
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
