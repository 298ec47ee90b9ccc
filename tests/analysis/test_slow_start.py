"""Advice on starting up: the change that saves the most, and never more than there is."""

from dataclasses import replace

import pytest

from tests.analysis.rule_case import advice_of
from tests.analysis.rule_cases.starting import GUARDED, LISTS, SLOW_IMPORT, starting


def advised(*lines, **settings):
    return advice_of(starting(*lines, **settings))["slow-start"]


def test_a_line_that_workers_run_again_is_put_under_the_guard():
    # It is 3 of the 5 s of each worker, so that it is 6 of the 10 s in which they start.
    found = advised(SLOW_IMPORT)
    assert found.evidence["saves_s"] == pytest.approx(6.0)
    assert "`import slow` (train.py:5) takes 3.00 s, and each of 2 workers runs it again" in found.why
    assert found.how.startswith('put it under if __name__ == "__main__":')


def test_what_the_guard_leaves_out_is_imported_once_by_a_server():
    found = advised(GUARDED)
    assert found.evidence["saves_s"] == pytest.approx(5.0)  # of two workers one after the other, the second
    assert 'set_forkserver_preload(["torch", ...])' in found.how


def test_workers_that_start_side_by_side_gain_nothing_by_a_server():
    assert advised(LISTS, workers_s=5.0).evidence["path"] == "data.py"


def test_forked_workers_import_nothing_again():
    found = advised(SLOW_IMPORT, LISTS, method="fork")
    assert found.evidence["saves_s"] == pytest.approx(4.0)
    assert found.title == "Make the dataset from a list that is kept"
    one_line_of_it = advised({**LISTS, "seconds": 2.5}, method="fork")
    assert one_line_of_it.evidence["saves_s"] == pytest.approx(4.0)


def test_a_slow_import_of_the_main_process_is_named():
    found = advised(GUARDED, method="fork")
    assert (found.evidence["path"], found.evidence["line"]) == ("train.py", 5)
    assert "-X importtime" in found.how


def test_an_import_within_a_call_of_a_library_is_not_the_users_to_change():
    lazy = {**GUARDED, "code": "optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)"}
    assert "slow-start" not in advice_of(starting(lazy, method="fork"))


@pytest.mark.parametrize("code", ["import torch, slow", "from torchvision.transforms import v2"])
def test_an_import_that_the_training_needs_is_not_told_to_come_later(code):
    assert "slow-start" not in advice_of(starting({**GUARDED, "code": code}, method="fork"))


def test_an_import_of_what_runs_the_loop_is_not_told_to_come_later():
    needed = {**GUARDED, "code": "import lightning.pytorch as pl", "needed": True}
    assert "slow-start" not in advice_of(starting(needed, method="fork"))


def test_without_a_worker_started_by_itself_a_line_counts_for_each_of_them():
    found = advised(SLOW_IMPORT, bare_s=None)
    assert found.evidence["saves_s"] == pytest.approx(6.0)
    assert advised(SLOW_IMPORT, bare_s=None, workers_s=4.0).evidence["saves_s"] == pytest.approx(4.0)


def test_no_gain_in_throughput_is_claimed():
    assert advised(SLOW_IMPORT).gain is None


def test_a_start_of_a_few_seconds_is_no_matter():
    quick = starting(
        {**LISTS, "seconds": 2.0}, imports=1.0, workers_s=0.5, method="fork", **{"making the dataset": 2.0}
    )
    assert "slow-start" not in advice_of(quick)


@pytest.mark.parametrize(
    ("sending_s", "cores", "saves_s"),
    [
        (0.0, 2, 3.0),  # the pickling alone is known
        (6.0, 2, 6.0 + 10.0 - 5.0),  # the second worker imports only after the first one has its dataset
        (6.0, 1, 6.0 + 10.0 - 10.0),  # on one core they take turns all the same
    ],
)
def test_a_dataset_that_is_long_on_its_way_keeps_workers_from_starting_side_by_side(sending_s, cores, saves_s):
    job = starting(**({"sending the dataset to workers": sending_s} if sending_s else {}))
    pickled = {"dataset_pickle_bytes": 4e8, "dataset_pickle_s": 1.5, "dataset_pickle_complete": True}
    job = replace(
        job,
        environment={"cpu_cores_available": cores},
        evidence={**job.evidence, "loader": {**job.evidence["loader"], **pickled}},
    )
    found = advice_of(job)["spawn-pickling"]
    assert found.evidence["saves_s"] == pytest.approx(saves_s)
    assert ("side by side" in found.why) == (sending_s > 0)
