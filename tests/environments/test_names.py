"""The import names, in this environment, without pydata's Bottleneck."""

import importlib
import re
import subprocess
import sys
import types
import warnings
from pathlib import Path

import numpy as np
import pytest

import bottleneck
from bottleneck._pydata import PUBLIC_NAMES, VERSION, share_public_names

ROOT = Path(__file__).parents[2]


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
    with warnings.catch_warnings():  # next to pandas, which other tests import, the first import adds a filter
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

    assert set(PUBLIC_NAMES) == set(torch_bottleneck.__all__) < set(dir(torch_bottleneck))
    assert all(getattr(torch_bottleneck, name) is getattr(bottleneck, name) for name in PUBLIC_NAMES)
    assert torch_bottleneck.__version__ == VERSION
    assert not hasattr(torch_bottleneck, "nansum")
    assert python("import sys, torch_bottleneck; print('torch' in sys.modules)") == "False"


def test_load_needs_no_torch():
    assert python("import sys; from bottleneck import load, Diagnosis; print('torch' in sys.modules)") == "False"


def test_unknown_names_are_attribute_errors():
    assert not hasattr(bottleneck, "nanprod")
    assert not hasattr(bottleneck, "__path_of_nothing__")
    with pytest.raises(AttributeError, match="'move_mean' in torch-bottleneck"):
        _ = bottleneck.move_mean


def test_public_names_can_be_shared_with_pydatas_module():
    theirs = types.ModuleType("bottleneck")
    theirs.nansum = sum
    share_public_names(theirs)
    assert theirs.Pipeline is bottleneck.Pipeline
    assert theirs.nansum is sum
    with pytest.raises(AttributeError, match="nothing"):
        _ = theirs.nothing


def test_sharing_leaves_a_module_alone_that_answers_for_itself():
    own = bottleneck.__getattr__
    share_public_names(bottleneck)
    assert bottleneck.__getattr__ is own


def test_pandas_question_silences_pandas_warning_alone(monkeypatch):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        before = list(warnings.filters)
        monkeypatch.delitem(sys.modules, "pandas", raising=False)
        assert bottleneck.__version__ == VERSION
        assert warnings.filters == before
        monkeypatch.setitem(sys.modules, "pandas", types.ModuleType("pandas"))
        assert bottleneck.__version__ == VERSION
        warnings.warn("Pandas requires version '1.5.0' or newer of 'bottleneck' (version '0.1.0').", stacklevel=1)
        warnings.warn("Pandas requires version '3.0' or newer of 'numexpr' (version '2').", stacklevel=1)
        warnings.warn("Something about bottleneck", stacklevel=1)
    assert [str(warning.message)[:30] for warning in caught] == [
        "Pandas requires version '3.0' ",
        "Something about bottleneck",
    ]


@pytest.mark.parametrize("name", ["nansum", "nanmean", "nanmedian", "nanstd", "nanvar", "nanmin", "nanmax"])
def test_what_astropy_calls_is_numpys(name):
    assert getattr(bottleneck, name) is getattr(np, name)


def test_equal_values_share_the_mean_of_their_ranks():
    assert bottleneck.rankdata([10, 30, 20, 30]).tolist() == [1.0, 3.5, 2.0, 3.5]
    rows = np.array([[3.0, np.nan, 1.0, 3.0], [np.nan, np.nan, 5.0, 4.0]])
    np.testing.assert_equal(bottleneck.nanrankdata(rows, axis=-1), [[2.5, np.nan, 1, 2.5], [np.nan, np.nan, 2, 1]])
    np.testing.assert_equal(bottleneck.nanrankdata(rows[0]), [2.5, np.nan, 1, 2.5])
    np.testing.assert_equal(bottleneck.nanrankdata(rows.T, axis=0), bottleneck.nanrankdata(rows, axis=1).T)
    assert bottleneck.nanrankdata(np.empty((0, 2)), axis=0).shape == (0, 2)


def test_push_fills_forward_up_to_its_limit():
    row = np.array([np.nan, 5.0, np.nan, np.nan, np.nan, 6.0])
    np.testing.assert_equal(bottleneck.push(row), [np.nan, 5, 5, 5, 5, 6])
    np.testing.assert_equal(bottleneck.push(row, 2), [np.nan, 5, 5, 5, np.nan, 6])
    np.testing.assert_equal(bottleneck.push(row[:, None], axis=0)[:, 0], [np.nan, 5, 5, 5, 5, 6])
    assert np.isnan(row[0])
    assert np.isnan(row[2])
    assert bottleneck.push(np.array(["a", None], object)).tolist() == ["a", None]
