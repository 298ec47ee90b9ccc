import io
import re
import sys

import pytest

from bottleneck.cli.output import describe_update, open_progress
from bottleneck.measure.options import ProgressUpdate


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_the_line_keeps_its_places_and_never_goes_back(monkeypatch):
    # Guards: a bar that shrank for long texts, and a share that fell when another round was added.
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    with open_progress() as progress:
        for elapsed_s, experiment, rounds in ((30, "raw", 6), (31, "e" * 90, 60)):
            progress(ProgressUpdate("measuring", experiment, round=4, rounds=rounds, elapsed_s=elapsed_s, budget_s=90))
    shown = [line for line in re.split(r"[\r\n]|\x1b\[[0-9;?]*[A-Za-z]", terminal.getvalue()) if " %  " in line]
    assert len({line.index("%") for line in shown}) == 1
    assert {re.search(r"(\d+) %", line)[1] for line in shown} == {"50"}
    assert max(map(len, shown)) <= 80


@pytest.mark.parametrize(
    ("update", "text"),
    [
        (ProgressUpdate("starting workers"), " 50 %                 starting workers"),
        (ProgressUpdate("recording", "raw"), " 50 %                 recording: raw"),
        (
            ProgressUpdate(
                "measuring", state="input_bound", bottleneck="augment", gain=2.36, elapsed_s=12, budget_s=60
            ),
            " 50 %   at most 48 s  so far: augment, 2.4x without it",
        ),
        (
            ProgressUpdate("measuring", state="input_bound", bottleneck="load", elapsed_s=70, budget_s=60),
            " 50 %    at most 0 s  so far: load",
        ),
        (ProgressUpdate("measuring", state="input_bound"), " 50 %                 so far: the input, no stage yet"),
        (ProgressUpdate("measuring", state="undecided"), " 50 %                 so far: undecided"),
        (ProgressUpdate("measuring", state="device_bound"), " 50 %                 so far: the train step holds it"),
    ],
)
def test_an_update_in_words(update, text):
    assert describe_update(update, 0.5) == text
