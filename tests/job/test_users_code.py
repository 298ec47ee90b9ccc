"""Whose code it is, and what launchers say of the place of this process."""

import collections
import os
import textwrap

import pytest

from bottleneck import _pydata, api, errors
from bottleneck.job import target, world
from bottleneck.job.users_code import is_ours, is_users, shown_path, started_here, users_traceback, without_libraries
from bottleneck.job.world import Place, find_place
from bottleneck.loader import trees
from bottleneck.measure.machine import environment


@pytest.mark.parametrize("module", [target, api])
def test_what_calls_the_users_code_is_ours(module):
    assert is_ours(module.__file__)
    assert not is_users(module.__file__)


@pytest.mark.parametrize("module", [_pydata, errors])
def test_what_the_users_code_calls_is_not(module):
    assert not is_ours(module.__file__)


def test_files_are_shown_from_where_a_command_was_started_whatever_the_job_changes_to(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "outputs").mkdir()
    with started_here():
        os.chdir("outputs")  # as Hydra does
        assert shown_path(str(tmp_path / "train.py")) == "train.py"
    assert os.getcwd() == str(tmp_path)
    os.chdir("outputs")
    assert shown_path(str(tmp_path / "train.py")) == str(tmp_path / "train.py")


def test_our_own_frames_are_left_out():
    def user_function(_):
        raise ValueError("mine")

    try:
        trees.map_leaves(user_function, [1])
    except ValueError as error:
        shown = users_traceback(error)
    assert "in user_function" in shown
    assert "in map_leaves" not in shown
    assert shown.endswith("ValueError: mine")


def test_in_short_frames_of_libraries_are_a_number():
    text = f"""\
        Traceback (most recent call last):
          File "/home/me/train.py", line 3, in __getitem__
            return self.rows[index]
                   ~~~~~~~~~^^^^^^^
          File "{collections.__file__}", line 7, in __getitem__
            return self.data[key]
          File "{collections.__file__}", line 9, in __missing__
            raise KeyError(key)
        KeyError: two
            lines"""
    assert without_libraries(textwrap.dedent(text)) == textwrap.dedent("""\
        Traceback (most recent call last):
          File "/home/me/train.py", line 3, in __getitem__
            return self.rows[index]
                   ~~~~~~~~~^^^^^^^
          (2 frames of libraries left out: --traceback shows all)
        KeyError: two
            lines""")


@pytest.mark.parametrize(
    ("variables", "ranks"),
    [
        ({}, 1),
        ({"WORLD_SIZE": "16", "RANK": "3", "LOCAL_RANK": "3", "LOCAL_WORLD_SIZE": "8"}, 8),
        ({"OMPI_COMM_WORLD_SIZE": "16", "OMPI_COMM_WORLD_LOCAL_SIZE": "4"}, 4),
        ({"PMI_SIZE": "16", "MPI_LOCALNRANKS": "2"}, 2),
        ({"SLURM_STEP_NUM_TASKS": "11", "SLURM_PROCID": "0", "SLURM_STEP_TASKS_PER_NODE": "4(x2),3"}, 4),
        ({"WORLD_SIZE": "16", "RANK": "3", "LOCAL_WORLD_SIZE": "many"}, 1),
    ],
)
def test_launchers_say_how_many_ranks_a_host_has(variables, ranks):
    assert world.ranks_of_host(variables) == ranks


def test_ranks_that_a_script_spawns_are_all_on_its_host(monkeypatch):
    monkeypatch.setattr(world, "world_size", lambda: 3)
    assert world.ranks_of_host({}) == 3


def test_a_rank_takes_its_part_of_the_memory_only(monkeypatch):
    # Guards: eight ranks of a host that each take a quarter of the free memory.
    monkeypatch.setattr(environment, "free_memory_bytes", lambda: 800)
    assert environment.rank_memory_bytes() == 800
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    assert environment.rank_memory_bytes() == 100


@pytest.mark.parametrize(
    "given",
    [
        {"WORLD_SIZE": "4", "RANK": "2", "LOCAL_RANK": "1"},
        {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "1"},
        {"PMI_SIZE": "4", "PMI_RANK": "2", "MPI_LOCALRANKID": "1"},
        {"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "2", "SLURM_LOCALID": "1", "SLURM_NTASKS": "8"},
    ],
    ids=["torchrun", "Open MPI", "MPICH", "srun"],
)
def test_a_launched_process_knows_its_place(given):
    assert find_place(given) == Place(next(iter(given)), 4, 2, 1)


@pytest.mark.parametrize("changes", [{"WORLD_SIZE": "1"}, {"WORLD_SIZE": "many"}, {"RANK": "x"}, {"LOCAL_RANK": "-1"}])
def test_a_process_that_is_alone_or_cannot_tell_has_none(changes):
    assert find_place({"WORLD_SIZE": "4", "RANK": "2", "LOCAL_RANK": "1", **changes}) is None
