"""What the import names offer, in this environment, where pydata's Bottleneck is not installed."""

import importlib
import re
import subprocess
import sys
import types
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

import bottleneck
from bottleneck._pydata import arrays, names
from bottleneck._pydata.names import PUBLIC_NAMES, VERSION, share_public_names

ROOT = Path(__file__).parents[2]
NUMBERS = st.one_of(st.just(np.nan), st.integers(-50, 50).map(float))
MATRICES = arrays_of.arrays(np.float64, st.tuples(st.integers(1, 5), st.integers(1, 5)), elements=NUMBERS)
AXES = st.sampled_from([None, 0, 1, -1])


def python(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    return done.stdout.strip()


def test_importing_it_imports_nothing_else_and_leaves_the_warnings_filters():
    code = (
        "import sys, warnings; modules, filters = set(sys.modules), list(warnings.filters);"
        "import bottleneck; bottleneck.__version__;"
        "print(sorted(name for name in set(sys.modules) - modules if not name.startswith('bottleneck')"
        " and name.split('.')[0] not in sys.stdlib_module_names), filters == warnings.filters)"
    )
    assert python(code) == "[] True"
    assert python("import sys, bottleneck; print([n for n in sys.modules if 'bottleneck.' in n])") == "[]"


def test_the_version_is_that_of_the_distribution_and_below_1():
    [declared] = re.findall(r'^version = \{ attr = "(.*)" \}$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    module, _, name = declared.rpartition(".")
    assert bottleneck.__version__ == VERSION == getattr(importlib.import_module(module), name)
    assert VERSION.startswith("0.")


@pytest.mark.parametrize("name", PUBLIC_NAMES)
def test_public_names_come_on_demand(name):
    assert getattr(bottleneck, name).__name__ == name


def test_all_public_names_are_listed():
    assert set(bottleneck.__all__) == set(PUBLIC_NAMES)
    assert set(dir(bottleneck)) >= set(PUBLIC_NAMES)


def test_the_other_name_gives_the_same_and_no_more():
    import torch_bottleneck

    assert {*PUBLIC_NAMES, "__version__"} == set(torch_bottleneck.__all__) <= set(dir(torch_bottleneck))
    assert all(getattr(torch_bottleneck, name) is getattr(bottleneck, name) for name in PUBLIC_NAMES)
    assert torch_bottleneck.__version__ == VERSION
    assert not hasattr(torch_bottleneck, "nansum")
    assert python("import sys, torch_bottleneck; print('torch' in sys.modules)") == "False"


def test_load_needs_no_torch():
    assert python("import sys; from bottleneck import load, Diagnosis; print('torch' in sys.modules)") == "False"


def test_unknown_names_are_attribute_errors():
    assert not hasattr(bottleneck, "nanprod")
    assert not hasattr(bottleneck, "__path_of_nothing__")
    with pytest.raises(AttributeError, match="'move_mean': this is torch-bottleneck"):
        _ = bottleneck.move_mean


def test_public_names_can_be_shared_with_a_module_that_is_not_ours():
    theirs = types.ModuleType("bottleneck")
    theirs.nansum = sum
    share_public_names(theirs)
    assert theirs.Pipeline is bottleneck.Pipeline
    assert theirs.nansum is sum
    with pytest.raises(AttributeError, match="nothing"):
        _ = theirs.nothing


def test_sharing_asks_an_earlier_hook_and_leaves_our_own_module_alone():
    theirs = types.ModuleType("bottleneck")
    theirs.__getattr__ = lambda name: f"their {name}"
    share_public_names(theirs)
    assert theirs.diagnose is bottleneck.diagnose
    assert theirs.bench == "their bench"
    own = bottleneck.__getattr__
    share_public_names(bottleneck)
    assert bottleneck.__getattr__ is own


def test_only_pandas_question_silences_pandas_warning():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        before = list(warnings.filters)
        assert names.version() == VERSION
        assert warnings.filters == before
        scope = {"__name__": "pandas.compat._optional", "bottleneck": bottleneck}
        assert eval("bottleneck.__version__", scope) == VERSION
        assert len(warnings.filters) == len(before) + 1
        warnings.warn("Pandas requires version '1.5.0' or newer of 'bottleneck' (version '0.1.0').", stacklevel=1)
        warnings.warn("Pandas requires version '3.0' or newer of 'numexpr' (version '2').", stacklevel=1)
        warnings.warn("Something about bottleneck", stacklevel=1)
    assert [str(warning.message)[:30] for warning in caught] == [
        "Pandas requires version '3.0' ",
        "Something about bottleneck",
    ]


@pytest.mark.parametrize("name", ["nansum", "nanmean", "nanstd", "nanvar", "nanmin", "nanmax", "nanmedian", "median"])
@given(matrix=MATRICES, axis=AXES)
def test_reductions_are_numpys_without_its_warnings(name, matrix, axis):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = getattr(np, name)(matrix, axis=axis)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = getattr(bottleneck, name)(matrix, axis=axis)
    assert np.shape(found) == np.shape(expected)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@given(matrix=MATRICES, axis=AXES, ddof=st.integers(0, 2))
def test_the_variance_takes_degrees_of_freedom(matrix, axis, ddof):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = np.nanvar(matrix, axis=axis, ddof=ddof)
    np.testing.assert_allclose(arrays.nanvar(matrix, axis=axis, ddof=ddof), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "int32", "bool"])
def test_types_are_those_of_numpy(dtype):
    matrix = np.array([[1, 0], [3, 2]], dtype)
    for name in ("nansum", "nanmean", "nanmin", "nanmedian"):
        assert getattr(arrays, name)(matrix, axis=0).dtype == getattr(np, name)(matrix, axis=0).dtype


def test_where_there_is_nothing_to_reduce():
    empty = np.empty((0, 2))
    assert np.isnan(arrays.nanmedian(empty, axis=0)).tolist() == [True, True]
    assert np.isnan(arrays.nanmean(np.empty(0)))
    with pytest.raises(ValueError, match="zero-size"):
        arrays.nanmin(empty, axis=0)
    with pytest.raises(ValueError, match="All-NaN"):
        arrays.nanargmin([np.nan])


def test_the_other_functions():
    row = np.array([3.0, np.nan, 1.0, 3.0])
    assert arrays.nanargmin(row) == 2
    assert arrays.nanargmax(row) == 0
    assert arrays.ss([1, 2, 3]) == 14
    assert arrays.anynan(row)
    assert not arrays.allnan(row)
    assert arrays.rankdata([10, 30, 20, 30]).tolist() == [1.0, 3.5, 2.0, 3.5]
    np.testing.assert_equal(arrays.nanrankdata(row), [2.5, np.nan, 1.0, 2.5])
    assert arrays.partition([3, 1, 2], 0)[0] == 1
    assert arrays.argpartition([3, 1, 2], 0)[0] == 1
    arrays.replace(row, np.nan, 7)
    assert row.tolist() == [3.0, 7.0, 1.0, 3.0]


def test_push_fills_forward_up_to_its_limit():
    row = np.array([np.nan, 5.0, np.nan, np.nan, np.nan, 6.0])
    np.testing.assert_equal(arrays.push(row), [np.nan, 5, 5, 5, 5, 6])
    np.testing.assert_equal(arrays.push(row, 2), [np.nan, 5, 5, 5, np.nan, 6])
    np.testing.assert_equal(arrays.push(row[:, None], axis=0)[:, 0], [np.nan, 5, 5, 5, 5, 6])
    assert np.isnan(row[0])
    assert np.isnan(row[2])
