"""Ranks that a script starts by itself: several are refused, a single one runs where it is seen."""

import os
from multiprocessing.process import BaseProcess

import pytest
from torch import multiprocessing

from bottleneck.script.one_process import OneProcess


class Refused(Exception):
    """Stands for the end of the script."""


def refuse(error):
    raise Refused(str(error))


def test_a_single_rank_runs_in_the_scripts_own_process():
    seen, start = [], multiprocessing.spawn
    with OneProcess(refuse):
        multiprocessing.spawn(lambda rank, more: seen.append((rank, more, os.getpid())), args=("data",), nprocs=1)
    assert seen == [(0, "data", os.getpid())]
    assert multiprocessing.spawn is start


def test_several_ranks_are_refused_before_any_is_started():
    started = BaseProcess.start
    with pytest.raises(Refused, match="in 2 processes of its own"), OneProcess(refuse):
        multiprocessing.spawn(print, nprocs=2)
    assert BaseProcess.start is started
