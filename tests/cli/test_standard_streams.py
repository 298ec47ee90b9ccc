"""Standard input, output and error in any state: closed, full, endless, of an odd encoding, a terminal or none."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys

import pytest

from bottleneck.cli.main import run
from bottleneck.errors import ExitStatus
from bottleneck.results.files import MAX_RESULT_BYTES
from bottleneck.results.json import save, to_json
from tests.support.results_factory import make_device_bound_result, make_result

MAIN = "from bottleneck.cli.main import main; main()"
ESCAPE = "\x1b"


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "result.json"
    save(make_result(pipeline={"dataset": "数据 café"}), path)
    return path


@pytest.fixture
def quiet_terminal(monkeypatch):
    """No variable says how wide the terminal is or what it shows."""
    for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")


class Terminal(io.StringIO):
    """A terminal that keeps its output."""

    def isatty(self):
        return True


def on_a_terminal(monkeypatch, arguments):
    terminal = Terminal()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", terminal)
        assert run(arguments) == ExitStatus.OK
    return terminal.getvalue()


def in_a_shell(redirection, arguments, **environment):
    """Run the command with what a shell does to its streams; its status, standard output and standard error."""
    command = ["/bin/sh", "-c", f'exec "$0" "$@" {redirection}', sys.executable, "-c", MAIN, *map(str, arguments)]
    plain = {"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(filter(None, sys.path)), **environment}
    done = subprocess.run(command, capture_output=True, env=plain, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr.decode()


# --- colours and widths -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("quiet_terminal")
def test_a_terminal_gets_colours_and_the_words_of_the_log_file(saved, monkeypatch, capsys):
    coloured = on_a_terminal(monkeypatch, ["report", str(saved)])
    assert run(["report", str(saved)]) == ExitStatus.OK
    plain = capsys.readouterr().out
    assert f"{ESCAPE}[32m" in coloured  # the bars
    assert ESCAPE not in plain
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == plain


@pytest.mark.usefixtures("quiet_terminal")
@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize(("columns", "most"), [("40", 40), ("400", 100), ("many", 80)])
def test_reports_are_as_wide_as_the_terminal_and_no_wider_than_can_be_read(
    saved, monkeypatch, capsys, columns, most, terminal
):
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("NO_COLOR", "1")
    other = saved.with_name("other.json")
    save(make_device_bound_result(), other)
    for arguments in (["report", str(saved)], ["compare", str(saved), str(other), "--force"]):
        if terminal:
            shown = re.sub(r"\x1b\[[\d;]*m", "", on_a_terminal(monkeypatch, arguments))
        else:
            assert run(arguments) == ExitStatus.OK
            shown = capsys.readouterr().out
        widest = max(map(len, shown.splitlines()))
        assert most - 25 < widest <= most


# --- encodings --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_a_locale_without_bars_and_dashes_shows_plain_ones_in_the_same_columns(saved, encoding):
    status, out, err = in_a_shell("", ["report", saved], PYTHONIOENCODING=encoding)
    assert (status, err) == (0, "")
    shown = out.decode(encoding)
    assert "< bottleneck" in shown
    assert "?" not in shown.partition("\n")[2]  # the first line names the job, in its own characters
    rows = [line for line in shown.splitlines() if "####" in line]
    assert len({line.index("####") for line in rows}) == 1


@pytest.mark.parametrize("form", ["json", "html", "markdown"])
def test_documents_are_utf_8_in_every_locale(saved, form):
    status, out, err = in_a_shell("", ["report", saved, "--format", form], PYTHONIOENCODING="ascii")
    assert (status, err) == (0, "")
    assert "café" in out.decode("utf-8")
    if form == "json":
        assert json.loads(out) == json.loads(saved.read_bytes())


# --- streams that take or give nothing --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("redirection", "said"),
    [
        (">/dev/full", "Error: Cannot write standard output: no space left on device. "),
        (">&-", "Error: Standard output is closed. "),
    ],
    ids=["full", "closed"],
)
@pytest.mark.parametrize("form", ["text", "html"])
def test_output_that_goes_nowhere_is_told_as_a_file_that_cannot_be_written(saved, redirection, said, form):
    status, _, err = in_a_shell(redirection, ["report", saved, "--format", form])
    assert status == ExitStatus.USAGE
    assert err.startswith(said)
    assert err.count("\n") == 1


JOB = """
import io, sys, torch
def build():
    {line}
    return {{"dataset": torch.zeros(512, 4), "train_step": lambda batch: batch.sum(), "batch_size": 8}}
"""


@pytest.mark.parametrize(
    ("redirection", "line", "shown"),
    [("2>&-", "print('said')", ""), ("", "sys.stdout = io.TextIOWrapper(sys.stdout.buffer); sys.stderr.close()", "")],
    ids=["closed", "the job wraps one and closes the other"],
)
def test_a_diagnosis_does_not_need_standard_error(redirection, line, shown, tmp_path):
    (tmp_path / "job.py").write_text(JOB.format(line=line), encoding="utf-8")
    job, result = tmp_path / "job.py", tmp_path / "result.json"
    status, out, err = in_a_shell(redirection, ["diagnose", f"{job}:build", "--budget", "1s", "--json", result])
    assert status == ExitStatus.OK, err
    assert out
    assert json.loads(result.read_bytes())["schema_version"] == 1
    assert shown in err


def test_what_cannot_be_told_changes_no_status(tmp_path):
    assert in_a_shell("2>/dev/full", ["report", tmp_path / "none.json"])[0] == ExitStatus.USAGE
    assert in_a_shell("2>/dev/full", [])[0] == ExitStatus.USAGE


@pytest.mark.parametrize(
    ("redirection", "said"),
    [
        ("<&-", "Error: Standard input is closed. "),
        ("</dev/null", "Error: standard input is empty. "),
        ("</dev/zero", "Error: standard input is larger than 64 MiB, more than any result needs. "),
        ("0>/dev/null", "Error: Cannot read standard input: "),
    ],
    ids=["closed", "empty", "endless", "not for reading"],
)
def test_input_that_is_no_result_is_refused_in_one_line(redirection, said):
    status, out, err = in_a_shell(redirection, ["report", "-"])
    assert (status, out) == (ExitStatus.USAGE, b"")
    assert err.startswith(said)
    assert err.count("\n") == 1
    assert "Traceback" not in err
    assert MAX_RESULT_BYTES == 64 * 2**20


def piped(monkeypatch, content: bytes):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content), encoding="ascii"))


def test_a_result_can_be_compared_with_one_on_standard_input(saved, monkeypatch, capsys):
    piped(monkeypatch, to_json(make_result()).encode())
    assert run(["compare", str(saved), "-", "--force"]) == ExitStatus.OK
    assert "within noise" in capsys.readouterr().out
    piped(monkeypatch, to_json(make_result()).encode())
    assert run(["report", str(saved), "--base", "-", "--force", "--format", "markdown"]) == ExitStatus.OK
    assert "within noise" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments", [["compare", "-", "-"], ["report", "-", "--base", "-", "--format", "markdown"]], ids=" ".join
)
def test_standard_input_holds_one_result_only(arguments, capsys):
    assert run(arguments) == ExitStatus.USAGE
    assert "Error: Standard input can provide only one result. " in capsys.readouterr().err
