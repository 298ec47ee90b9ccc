"""Targets are loaded, and texts of the command line understood, or refused in a sentence."""

import sys
from textwrap import dedent

import numpy as np
import pytest

from bottleneck.errors import TargetError, UsageError
from bottleneck.job.target import build_pipeline, load_target, parse_duration, parse_settings, parse_size

GOOD = """
from bottleneck.job.pipeline import Pipeline

def build():
    return Pipeline(dataset=[1, 2, 3], train_step=print, batch_size=2)

def mapping():
    return {"dataset": [1, 2], "train_step": print}

class Jobs:
    @staticmethod
    def small():
        return build()

default = build()
LIMIT = 3
"""


def write(folder, name, text):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dedent(text))
    return path


@pytest.mark.parametrize("target", ["job_a:build", "job_a.py:build", "./job_a.py:Jobs.small", "job_a:mapping"])
def test_modules_and_files_build_a_pipeline(folder, target):
    write(folder, "job_a.py", GOOD)
    assert build_pipeline(target).train_step is print


def test_a_module_in_a_package(folder):
    write(folder, "pack/__init__.py", "")
    write(folder, "pack/parts.py", "SIZE = 2\n")
    write(folder, "pack/job_b.py", "from .parts import SIZE\ndef build(): return {'dataset': [1] * SIZE}\n")
    assert len(build_pipeline("pack.job_b:build").dataset) == 2
    assert len(build_pipeline("pack/job_b.py:build").dataset) == 2


def test_a_file_finds_what_lies_beside_it_and_in_the_working_directory(folder):
    write(folder, "here_c.py", "ONE = 1\n")
    write(folder, "sub/beside_c.py", "TWO = 2\n")
    write(folder, "sub/job_c.py", "import here_c, beside_c\ndef build(): return {'dataset': [here_c.ONE]}\n")
    assert build_pipeline("sub/job_c.py:build").dataset == [1]


def test_a_file_with_the_name_of_a_library_is_loaded_all_the_same(folder):
    write(folder, "json.py", "def build(): return {'dataset': [7]}\n")
    json = sys.modules["json"]
    assert build_pipeline("json.py:build").dataset == [7]
    assert sys.modules["json"] is json


def test_classes_of_a_file_can_be_pickled_by_name(folder):
    write(folder, "job_d.py", "class Data: pass\ndef build(): return {'dataset': Data()}\n")
    dataset = build_pipeline("job_d.py:build").dataset
    assert getattr(sys.modules[type(dataset).__module__], "Data") is type(dataset)  # noqa: B009 - a name, not an attribute


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("job_e", "names no function.*job_e:build"),
        ("jobe:build", "no module 'jobe'.*'job_e'"),
        ("zzz:build", "no module 'zzz'.*path/to/file.py"),
        ("job e:build", "'job e' is not the name of a module"),
        ("job_f.py:build", "The file 'job_f.py' does not exist.*'job_e.py'"),
        ("folder.py:build", "'folder.py' is a folder, not a file"),
        (f"{'long' * 100}.py:build", "The file 'longlong"),
        ("job_e.py:bulid", "has no 'bulid'.*job_e.py:build"),
        ("job_e:zzz", "has no 'zzz'. It has Jobs, build, mapping"),
        ("job_e:pipeline", "has no 'pipeline'. It has Jobs, build"),
        ("empty_job:build", r"has no 'build'. Define it: def build\(\)"),
        ("job_e:Jobs.smal", "job_e:Jobs has no 'smal'.*job_e:Jobs.small"),
        ("job_e:LIMIT", "is 3, not a function"),
        ("job_e:default", "is a Pipeline, not a function.*return default"),
    ],
)
def test_a_target_that_is_not_there_is_refused_with_what_is(folder, target, words):
    write(folder, "job_e.py", GOOD)
    write(folder, "empty_job.py", "from bottleneck import Pipeline\n")
    (folder / "folder.py").mkdir()
    with pytest.raises(TargetError, match=words) as caught:
        load_target(target)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("syntax", "def build(:\n", r"SyntaxError: invalid syntax \(job_syntax.py, line 1\)"),
        ("missing", "import not_there_at_all\n", r"No module named 'not_there_at_all' .*Install not_there_at_all"),
        ("raises", "\nraise ValueError('first\\nsecond')\n", r"ValueError: first second \(job_raises.py, line 2\)"),
        ("exits", "import sys\nsys.exit(3)\n", r"SystemExit: 3 .*__main__"),
    ],
)
@pytest.mark.parametrize("form", ["job_{}:build", "job_{}.py:build"])
def test_code_that_fails_at_import_is_shown_on_one_line(folder, form, name, text, words):
    write(folder, f"job_{name}.py", text)
    with pytest.raises(TargetError, match=words) as caught:
        load_target(form.format(name))
    assert caught.value.__cause__ is not None
    assert f"job_{name}" not in sys.modules


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("def build(root, size=3): pass", r"needs arguments: root\."),
        ("def build(): raise KeyError('train')", r"raised KeyError: 'train' \(job_g.py, line 1\)"),
        ("def build(): raise SystemExit('usage')", "raised SystemExit: usage"),
        ("def build(): return [1]", r"returned \[1\], not a Pipeline"),
        ("async def build(): pass", "returned a coroutine"),
        (
            "from torch.utils.data import DataLoader\ndef build(): return DataLoader([1])",
            "returned a DataLoader.*from_loader",
        ),
    ],
)
def test_a_function_that_builds_no_pipeline_is_refused(folder, body, words):
    write(folder, "job_g.py", body)
    with pytest.raises(TargetError, match=words):
        build_pipeline("job_g.py:build")


@pytest.mark.parametrize(
    ("text", "setting"),
    [
        ("num_workers=8", ("num_workers", 8)),
        ("batch_size=none", ("batch_size", None)),
        ("pin_memory=true", ("pin_memory", True)),
        ("drop_last=1", ("drop_last", True)),
        ("timeout=1.5", ("timeout", 1.5)),
        ("device=cuda:1", ("device", "cuda:1")),
        ("device=0", ("device", 0)),
        ("augment=dataset.transform", ("augment", "dataset.transform")),
        ("augment=['transform', 'loader']", ("augment", ("transform", "loader"))),
        ("multiprocessing_context=spawn", ("multiprocessing_context", "spawn")),
        ("collate_fn=none", ("collate_fn", None)),
    ],
)
def test_values_get_the_type_of_their_field(text, setting):
    assert parse_settings([text, text]) == dict([setting])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("num_workers", "not KEY=VALUE"),
        ("batchsize=3", "'batch_size'"),
        ("zzz=3", "Known keys: batch_size"),
        ("num_workers=many", "whole number from 0 to 1024, not 'many'.*num_workers=4"),
        ("num_workers=none", "whole number from 0 to 1024, not None"),
        ("pin_memory=2", "True or False, not 2"),
        ("timeout=long", "number of seconds"),
        ("device=", "must be text"),
        ("model=resnet18", "Python object"),
        ("model=none", "Python object"),
    ],
)
def test_what_is_no_setting_is_refused(text, words):
    with pytest.raises(UsageError, match=words):
        parse_settings([text])


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("2m", 120),
        ("1m30s", 90),
        ("1h 2min 3s", 3723),
        ("120", 120),
        ("1.5m", 90),
        (" 500ms ", 0.5),
        (".5", 0.5),
        (45, 45),
        (1.5, 1.5),
    ],
)
def test_durations(text, seconds):
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "9" * 400,
        "2x",
        "m",
        "-5",
        "0s",
        "1m30",
        "1.2.3s",
        "5 days",
        None,
        True,
        0,
        10**400,
        float("nan"),
        "inf",
        b"1",
        "1e3",
        "1_0",
        "٣s",
        np.int64(3),
    ],
)
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(UsageError, match=r"is not a duration above 0\. .*1m30s"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("1000", 1000), ("1B", 1), ("20 kB", 20_000), ("500MB", 500 * 10**6), ("2gb", 2 * 10**9), ("1TB", 10**12),
        ("1KiB", 1024), ("1.5 MiB", 3 << 19), ("8GiB", 8 << 30), (" .5TiB ", 1 << 39),
        ("9007199254740991", 2**53 - 1),
    ],
)  # fmt: skip
def test_an_amount_of_memory_is_bytes(text, nbytes):
    assert parse_size(text) == nbytes


@pytest.mark.parametrize(
    "text", ["", "0", "0.1", "-5", "8G", "8 Gigabytes", "GiB", "1e9", "1.2.3GB", "9" * 400, "8192TiB", "٣GB"]
)
def test_what_is_no_amount_of_memory_is_refused(text):
    with pytest.raises(UsageError, match=r"is not an amount of memory. Write for example 8GiB or 500MB"):
        parse_size(text)
