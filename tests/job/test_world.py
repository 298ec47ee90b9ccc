"""How many ranks share a host, by what launchers say."""

import pytest

from bottleneck.job import world
from bottleneck.measure.system import environment


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
    # Guards: eight ranks of a host that each take a quarter of what is free.
    monkeypatch.setattr(environment, "free_memory_bytes", lambda: 800)
    assert environment.rank_memory_bytes() == 800
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    assert environment.rank_memory_bytes() == 100
