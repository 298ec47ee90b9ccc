"""`bottleneck doctor` under a launcher: what each rank sees, how they differ, and that nobody waits for ever."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bottleneck.doctor.finding import Finding
from bottleneck.doctor.rank_view import RankView, look_around, numa_node_of, numa_nodes, spans
from bottleneck.doctor.ranks import MOST_LINES, Launch, _collect, ask_ranks, examine_place, examine_ranks, find_launch
from tests.support.clock import FakeClock

GIB = 1 << 30
ROOT = Path(__file__).parent.parent.parent
LAUNCHED = {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "MASTER_ADDR": "node-0", "MASTER_PORT": "29500"}


def view(rank: int = 0, **changes) -> RankView:
    seen = RankView(
        rank=rank, local_rank=rank % 4, host=f"node-{rank // 4}", cpus=tuple(range(8)), usable_cores=8.0,
        numa_nodes=(0,), memory_bytes=64 * GIB, free_memory_bytes=32 * GIB, shm_bytes=8 * GIB, shm_free_bytes=8 * GIB,
        devices=tuple(f"cuda:{at} H100" for at in range(4)), device_numa_node=0, torch="2.14.1", python="3.11.7",
        omp_num_threads="1", problems=(),
    )  # fmt: skip
    return replace(seen, **changes)


def told(views, world=None) -> dict[str, list[Finding]]:
    found: dict[str, list[Finding]] = {}
    for finding in examine_ranks(views, world or len(views)):
        found.setdefault(finding.subject, []).append(finding)
    return found


# --- who we are -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("changes", "store_is_there"), [({}, False), ({"TORCHELASTIC_USE_AGENT_STORE": "True"}, True)])
def test_a_launched_process_knows_its_rank_and_whose_store_it_is(changes, store_is_there):
    assert find_launch({**LAUNCHED, **changes}) == Launch(1, 4, 1, "node-0", 29500, store_is_there, "0")


@pytest.mark.parametrize(
    "given",
    [
        {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "1"},
        {"PMI_RANK": "1", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1"},
        {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "4", "SLURM_LOCALID": "1", "SLURM_NTASKS": "8"},
    ],
    ids=["Open MPI", "MPICH", "srun"],
)
def test_a_rank_of_another_launcher_is_asked_where_the_job_says_where_the_first_one_is(given):
    at = {"MASTER_ADDR": "node-0", "MASTER_PORT": "29500"}
    assert find_launch({**given, **at}) == Launch(1, 4, 1, "node-0", 29500, store_is_there=False, attempt="0")
    (finding,) = examine_place(given)
    assert "is 4, but nothing says where the other ranks are" in finding.message
    assert "MASTER_ADDR" in finding.remedy
    assert [*examine_place({}), *examine_place({**given, **at})] == []


@pytest.mark.parametrize(
    "changes",
    [{"WORLD_SIZE": "1", "RANK": "0"}, {"RANK": "4"}, {"RANK": "x"}, {"MASTER_ADDR": None}, {"LOCAL_RANK": "-1"}],
)
def test_who_is_alone_or_cannot_tell_is_examined_alone(changes):
    given = {key: value for key, value in {**LAUNCHED, **changes}.items() if value is not None}
    assert find_launch(given) is None


def test_what_a_rank_sees_survives_the_way():
    seen = look_around(0, 0, [Finding("problem", "torch", "cannot be imported"), Finding("ok", "cores", "8")])
    assert RankView.of_text(seen.to_text().encode()) == seen
    assert seen.problems == ("torch: cannot be imported",)
    assert seen.cpus == tuple(sorted(os.sched_getaffinity(0)))


# --- waiting ----------------------------------------------------------------------------------------------


class Kept(dict):
    """A store in this process."""

    def check(self, keys):
        return all(key in self for key in keys)


def collected(said, clock):
    launch = Launch(0, 3, 0, "a", 1, store_is_there=True, attempt="0")
    store = Kept({launch.key(rank): view(rank).to_text().encode() for rank in said})
    return [found.rank for found in _collect(store, launch, 10.0, clock, clock.advance)]


def test_all_that_answer_are_heard_without_waiting():
    clock = FakeClock()
    began = clock()
    assert collected([0, 1, 2], clock) == [0, 1, 2]
    assert clock() == began


def test_one_that_never_answers_is_waited_for_once_and_hides_no_other():
    clock = FakeClock()
    began = clock()
    assert collected([0, 2], clock) == [0, 2]
    assert 10.0 <= clock() - began < 11.0


# --- what is told -----------------------------------------------------------------------------------------


def test_ranks_that_are_alike_have_a_line_each_and_no_warning():
    found = told([view(rank, cpus=(2 * rank, 2 * rank + 1)) for rank in range(4)])
    assert found["ranks"][0].message == "4 on 1 host"
    assert found["rank 1"][0].message == (
        "node-0: 8 cores (2-3), NUMA 0, 32.0 GiB free of 64.0 GiB, /dev/shm 8.00 GiB free, cuda:1 H100"
    )
    assert {finding.status for some in found.values() for finding in some} == {"ok"}


@pytest.mark.parametrize(
    ("changes", "subject", "message"),
    [
        ({"usable_cores": 4.0}, "usable cores", "differs: 8 on ranks 0, 2-3; 4 on rank 1"),
        ({"shm_bytes": 64 << 20}, "/dev/shm", "differs: 8.00 GiB on ranks 0, 2-3; 64.0 MiB on rank 1"),
        ({"devices": ("cuda:0 H100", "cuda:1 A100")}, "device", "differs: H100 on ranks 0, 2-3; A100 on rank 1"),
        ({"torch": "2.13"}, "torch", "differs: 2.14.1 on ranks 0, 2-3; 2.13 on rank 1"),
        ({"omp_num_threads": "8"}, "OMP_NUM_THREADS", "differs: 1 on ranks 0, 2-3; 8 on rank 1"),
    ],
)
def test_what_differs_is_told_with_the_ranks_that_have_it(changes, subject, message):
    found = told([view(0), view(1, **changes), view(2), view(3)])
    assert (found[subject][0].status, found[subject][0].message) == ("warning", message)


def test_a_rank_that_says_nothing_is_named():
    finding = told([view(0), view(2)], world=4)["ranks"][0]
    assert finding.status == "warning"
    assert finding.message == "2 of 4 answered, on 1 host: nothing was heard of ranks 1, 3"


def test_what_hinders_another_rank_is_a_problem_of_the_whole():
    found = told([view(0, problems=("device: broken",)), view(1, problems=("device: broken",))])
    assert "rank 0" in found
    assert [finding.status for finding in found["rank 0"]] == ["ok"]  # it stands among its own findings
    assert [(finding.status, finding.message) for finding in found["rank 1"]][1:] == [("problem", "device: broken")]


def test_cores_that_are_far_from_their_device_are_told():
    finding = told([view(0), view(1, device_numa_node=1)])["rank 1"][1]
    assert finding.message == "its cores are on NUMA node 0, its device is on 1"
    assert finding.remedy == "numactl --cpunodebind=1 --membind=1"


@pytest.mark.parametrize(("ranks", "status"), [(4, "ok"), (5, "warning")])
def test_ranks_that_share_cores_are_told_what_is_left_for_each(ranks, status):
    found = told([view(rank, host="node-0") for rank in range(ranks)])["cores"]
    assert [finding.status for finding in found] == [status]
    assert found[0].message == f"{ranks} ranks of node-0 share 8 cores, {8 / ranks:.2g} for each"


def test_of_a_thousand_ranks_a_few_are_listed_and_every_difference():
    found = told([view(rank, usable_cores=4.0 if rank == 900 else 8.0) for rank in range(1024)])
    assert sum(subject.startswith("rank ") for subject in found) == MOST_LINES
    assert found["usable cores"][0].message == "differs: 8 on ranks 0-899, 901-1023; 4 on rank 900"


def test_the_nodes_of_cores_and_devices_are_those_of_the_kernel(tmp_path):
    for node, cpus in ((0, (0, 1)), (1, (2, 3))):
        for cpu in cpus:
            (tmp_path / f"devices/system/node/node{node}/cpu{cpu}").mkdir(parents=True)
    (tmp_path / "bus/pci/devices/0000:3b:00.0").mkdir(parents=True)
    (tmp_path / "bus/pci/devices/0000:3b:00.0/numa_node").write_text("1\n")
    assert numa_nodes((1, 2), tmp_path) == (0, 1)
    assert numa_nodes((), tmp_path) == ()
    assert numa_node_of("0000:3b:00.0", tmp_path) == 1
    assert numa_node_of("", tmp_path) is None


@pytest.mark.parametrize(("numbers", "text"), [((), "unknown"), ((3,), "3"), ((0, 1, 2, 5), "0-2, 5"), ((1, 1), "1")])
def test_numbers_are_told_in_spans(numbers, text):
    assert spans(numbers) == text


# --- between processes ------------------------------------------------------------------------------------


@pytest.mark.integration
def test_under_torchrun_the_first_of_two_ranks_tells_of_both():
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*launcher, "-m", "bottleneck", "doctor"], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = [line.split()[1:] for line in done.stdout.splitlines() if line[:2].strip()]
    assert [words[0] for words in told].count("torch") == 1  # one of them tells
    assert ["ranks", "2", "on", "1", "host"] in told
    assert [words[1] for words in told if words[0] == "rank"] == ["0", "1"]


@pytest.mark.integration
def test_without_a_store_of_the_launcher_the_first_rank_opens_one():
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        port = chosen.getsockname()[1]
    code = (
        "import sys; from bottleneck.doctor.ranks import Launch, ask_ranks; rank = int(sys.argv[1])\n"
        f"launch = Launch(rank, 2, 0, '127.0.0.1', {port}, store_is_there=False, attempt='0')\n"
        "print(*[found.message for found in ask_ranks(launch, (), 40.0)], sep='\\n')"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", code, str(rank)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for rank in (0, 1)
    ]
    first, other = (process.communicate(timeout=60)[0].strip() for process in started)
    assert first.splitlines()[0] == "2 on 1 host"
    assert other == ""


@pytest.mark.integration
def test_a_store_that_cannot_be_reached_is_told_in_a_line():
    nowhere = Launch(0, 2, 0, "127.0.0.1", 1, store_is_there=True, attempt="0")
    found = ask_ranks(nowhere, (), 0.2)
    assert [(finding.status, finding.subject) for finding in found] == [("warning", "ranks")]
    assert "MASTER_ADDR" in found[0].remedy
