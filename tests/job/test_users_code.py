"""Whose code it is: that of the user, of a library, or of this package; and tracebacks without the latter two."""

import collections
import json
import os
import textwrap

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from bottleneck import _pydata, api, errors
from bottleneck.job import target
from bottleneck.job.loader_args import default_start_method, start_method_of
from bottleneck.job.users_code import is_library, is_ours, is_users, users_traceback, without_libraries
from bottleneck.loader import trees


@pytest.mark.parametrize("module", [torch, np, json])
def test_python_and_packages_are_libraries(module):
    assert is_library(module.__file__)
    assert not is_users(module.__file__)


def test_a_package_that_is_linked_into_its_place_is_a_library(tmp_path):
    # Guards: uv links to the files in its cache.
    (tmp_path / "cache.py").write_text("")
    place = tmp_path / "lib" / "site-packages" / "package.py"
    place.parent.mkdir(parents=True)
    os.symlink(tmp_path / "cache.py", place)
    assert is_library(str(place))


@pytest.mark.parametrize("module", [target, api])
def test_what_calls_the_users_code_is_ours(module):
    assert is_ours(module.__file__)
    assert not is_users(module.__file__)


@pytest.mark.parametrize("module", [_pydata, errors])
def test_what_the_users_code_calls_is_not(module):
    assert not is_ours(module.__file__)


def test_the_rest_is_the_users(tmp_path):
    assert is_users(__file__)
    assert is_users(str(tmp_path / "train.py"))
    assert not is_users("<frozen importlib._bootstrap>")


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


@pytest.mark.parametrize("context", ["spawn", torch.multiprocessing.get_context("spawn")])
def test_it_is_the_loaders_own(context):
    assert start_method_of(DataLoader([1], num_workers=1, multiprocessing_context=context)) == "spawn"


def test_else_it_is_the_default_which_asking_does_not_fix(monkeypatch):
    def ask(allow_none=False):
        assert allow_none

    monkeypatch.setattr("multiprocessing.get_start_method", ask)
    assert start_method_of(DataLoader([1], num_workers=1)) == default_start_method()
