import io
import sys
import threading

import pytest

from bottleneck.cli.progress import describe_update, done_share, open_progress
from bottleneck.measure.progress import ProgressUpdate
from bottleneck.results.records import Interval


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_nothing_is_shown_where_standard_error_is_no_terminal(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with open_progress() as progress:
        assert progress is None
    assert sys.stderr.getvalue() == ""


def test_a_terminal_gets_a_line_without_a_thread(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    threads = threading.active_count()
    with open_progress() as progress:
        progress(ProgressUpdate("measuring", "raw (coupled)", round=2, rounds=6, elapsed_s=3.0))
        assert threading.active_count() == threads
        assert sys.stderr is terminal
    assert "round 2 of 6: raw (coupled)" in terminal.getvalue()


@pytest.mark.parametrize(
    ("update", "text"),
    [
        (ProgressUpdate("starting workers"), "starting workers"),
        (ProgressUpdate("recording", "raw"), "recording: raw"),
        (
            ProgressUpdate(
                "measuring",
                "raw (drained)",
                round=3,
                rounds=6,
                efficiency=Interval(0.381, 0.364, 0.397),
                elapsed_s=12.0,
                budget_s=60.0,
            ),
            "round 3 of 6: raw (drained), efficiency 38 % (36–40 %), at most 48 s left",
        ),
        (ProgressUpdate("measuring", elapsed_s=70.0, budget_s=60.0), "measuring, at most 0 s left"),
    ],
)
def test_an_update_in_words(update, text):
    assert describe_update(update) == text


def test_the_share_that_is_done():
    assert done_share(ProgressUpdate("recording")) is None
    assert done_share(ProgressUpdate("measuring", round=4, rounds=6)) == 0.5
    assert done_share(ProgressUpdate("measuring", round=1, rounds=6, elapsed_s=30, budget_s=40)) == 0.75
    assert done_share(ProgressUpdate("measuring", elapsed_s=50, budget_s=40)) == 1.0
