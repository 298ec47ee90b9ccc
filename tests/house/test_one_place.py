"""Private names of other packages, each known to one module."""

import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "bottleneck"


def modules_with(pattern):
    return [
        str(path.relative_to(PACKAGE))
        for path in sorted(PACKAGE.rglob("*.py"))
        if re.search(pattern, path.read_text(encoding="utf-8"))
    ]


PRIVATE = (
    "_BaseDataLoaderIter",
    "_DatasetKind",
    "_utils import",
    "_task_info",
    "_rcvd_idx",
    "_send_idx",
    "_workers_status",
    "_shutdown_workers",
    "_worker_result_queue",
    "_index_queues",
    "_data_queue",
    "_worker_pids_set",
    "_num_yielded",
    "_SIGCHLD_handler_set",
    "_IterableDataset_len_called",
    "_auto_collation",
)


@pytest.mark.parametrize("name", PRIVATE)
def test_private_names_of_pytorchs_data_loading(name):
    assert modules_with(name) == ["job/torch_loading.py"]


@pytest.mark.parametrize("name", ["base_dataloader", "MultiEpochsDataLoader", "InfiniteDataLoader", "next_iter_state"])
def test_names_by_which_classes_of_loaders_are_known(name):
    assert modules_with(f'"{name}"') == ["job/loader_classes.py"]
