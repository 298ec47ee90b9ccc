"""Ranks of a script: those of a group go together; of those that it starts by itself a single one runs in sight."""

import os
from multiprocessing.process import BaseProcess

import pytest
from torch import multiprocessing

from bottleneck.errors import UsageError
from bottleneck.script.ranks import OwnRanks, check_group


class Refused(Exception):
    """Stands for the end of the script."""


def refuse(error):
    raise Refused(str(error))


def test_a_single_rank_runs_in_the_scripts_own_process():
    seen, start = [], multiprocessing.spawn
    with OwnRanks(refuse):
        multiprocessing.spawn(lambda rank, more: seen.append((rank, more, os.getpid())), args=("data",), nprocs=1)
    assert seen == [(0, "data", os.getpid())]
    assert multiprocessing.spawn is start


def test_several_ranks_are_refused_before_any_is_started():
    started = BaseProcess.start
    with pytest.raises(Refused, match="in 2 processes that it starts"), OwnRanks(refuse):
        multiprocessing.spawn(print, nprocs=2)
    assert BaseProcess.start is started


@pytest.mark.parametrize(
    ("environment", "world"), [({}, 1), ({}, 4), ({"WORLD_SIZE": "4"}, 4), ({"WORLD_SIZE": "1"}, 1)]
)
def test_one_process_and_the_ranks_of_a_group_are_diagnosed(environment, world):
    check_group(world, environment)


@pytest.mark.parametrize("name", ["WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"])
def test_processes_of_a_launcher_that_know_nothing_of_each_other_are_refused(name):
    # Guards: each would diagnose itself beside the others, and write the same report.
    with pytest.raises(UsageError, match=f"{name} is 4, and the script has joined no process group"):
        check_group(1, {name: "4"})
