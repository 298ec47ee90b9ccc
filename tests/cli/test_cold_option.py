"""`--cold` and `diagnose(cold=True)` reach the measuring, and are off unless asked for."""

import bottleneck
from bottleneck.cli.main import run

JOB = {"dataset": [1, 2, 3, 4], "train_step": print, "batch_size": 2}


def test_cold_files_are_measured_where_that_is_asked_for(asked):
    assert run(["diagnose", "job:build", "--cold"]) == 0
    assert run(["diagnose", "job:build"]) == 0
    bottleneck.diagnose(JOB, cold=True)
    bottleneck.diagnose(JOB)
    assert [options.cold for options in asked.options] == [True, False, True, False]
