"""Whose code it is: that of the user, of a library, or of this package."""

import json
import os

import numpy as np
import pytest
import torch

from bottleneck import _pydata, api, errors
from bottleneck.job import target
from bottleneck.job.users_code import is_library, is_ours, is_users


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
