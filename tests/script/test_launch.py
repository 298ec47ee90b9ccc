"""What is no script is refused before anything is imported, on systems without signals of their own, too."""

import subprocess
import sys

import pytest

from bottleneck.errors import UsageError
from bottleneck.script.launch import Script


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("missing.py", "no script 'missing.py'"),
        ("folder", "'folder' is a folder"),
        ("train.ipynb", "a notebook, not a Python script. In the notebook, write with bottleneck.diagnosing()"),
        ("train.sh", "a shell script, not a Python script. In the shell script, write bottleneck run"),
        ("train", None),
        ("project", None),
    ],
)
def test_what_is_no_script_is_refused(tmp_path, monkeypatch, name, said):
    monkeypatch.chdir(tmp_path)
    for folder in ("folder", "project"):
        (tmp_path / folder).mkdir()
    for file in ("project/__main__.py", "train.ipynb", "train.sh", "train"):
        (tmp_path / file).touch()
    script = Script(name, ())
    if said is None:
        script.check()
    else:
        with pytest.raises(UsageError) as caught:
            script.check()
        assert said in str(caught.value)


def test_commands_are_imported_where_there_are_no_signals_to_choose_from():
    code = "import signal; del signal.SIGRTMAX, signal.SIGHUP; import bottleneck.cli.measure, bottleneck.cli.tune"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
