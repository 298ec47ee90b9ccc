"""Real environments with our package beside pandas, xarray, astropy and pydata's Bottleneck.

Each is a virtual environment of its own, with our package installed from its wheel. The large packages are
installed once, in an environment that the others look into.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = [pytest.mark.environments, pytest.mark.timeout(1200)]
ROOT = Path(__file__).parents[2]

PANDAS = """
import pandas as pd, numpy as np
frame = pd.DataFrame({"a": [1.0, np.nan, 4.0], "b": [1, 2, 4]})
assert frame.sum().tolist() == [5.0, 7.0]
assert frame.mean().round(3).tolist() == [2.5, 2.333]
assert frame.median().tolist() == [2.5, 2.0]
assert frame.min().tolist() == [1.0, 1.0] and frame.max().tolist() == [4.0, 4.0]
assert round(frame["a"].std(), 4) == 2.1213 and frame["a"].var(ddof=0) == 2.25
assert frame["a"].prod() == 4.0 and frame["a"].idxmax() == 2
"""
XARRAY = """
import numpy as np, xarray as xr
data = xr.DataArray([[1.0, np.nan, 3.0], [4.0, 5.0, 9.0]], dims=("x", "y"))
with xr.set_options(use_bottleneck=True):
    assert data.mean("y").values.tolist() == [2.0, 6.0]
    assert data.median("y").values.tolist() == [2.0, 5.0]
    assert float(data.sum()) == 22.0 and float(data.std()) == float(np.nanstd(data.values))
    assert data.ffill("y").values.tolist() == [[1.0, 1.0, 3.0], [4.0, 5.0, 9.0]]
    assert data.isel(x=1).rank("y").values.tolist() == [1.0, 2.0, 3.0]
    assert data.isel(x=1).rolling(y=2).mean().values.tolist()[1:] == [4.5, 7.0]
"""
ASTROPY = """
import pickle, numpy as np, astropy.units as u
from astropy.stats import SigmaClip, nanfunctions, sigma_clipped_stats
row = np.array([1.0, 2.0, np.nan, 6.0])
assert nanfunctions.nansum(row) == 9.0 and nanfunctions.nanmean(row) == 3.0
assert nanfunctions.nanmedian(row) == 2.0 and nanfunctions.nanmax(row * u.m) == 6.0 * u.m
assert np.isclose(nanfunctions.nanvar(row * u.m), np.nanvar(row) * u.m**2)
cube = np.arange(24.0).reshape(2, 3, 4)
assert nanfunctions.nanmean(cube, axis=(0, 2)).tolist() == [7.5, 11.5, 15.5]
mean, median, std = sigma_clipped_stats(np.r_[np.tile([1.0, 3.0], 50), 1000.0])
assert (round(float(mean), 6), float(median), round(float(std), 6)) == (2.0, 2.0, 1.0)
pickle.loads(pickle.dumps(SigmaClip(3)))
"""
USERS = {"pandas": PANDAS, "xarray": XARRAY, "astropy": ASTROPY}


@dataclass(frozen=True)
class Environment:
    """A virtual environment."""

    folder: Path

    @property
    def python(self):
        return self.folder / "bin" / "python"

    def install(self, *requirements):
        pip = [sys.executable, "-m", "pip", "--python", self.python, "install", "-q", "--no-warn-conflicts"]
        subprocess.run([*pip, "--disable-pip-version-check", *requirements], check=True)

    def site_packages(self):
        return Path(self.run("import sysconfig; print(sysconfig.get_path('purelib'))"))

    def look_into(self, *folders):
        """Let it import what is installed elsewhere, after its own."""
        (self.site_packages() / "elsewhere.pth").write_text("".join(f"{folder}\n" for folder in folders))

    def run(self, code):
        """What `code` prints, every warning being an error."""
        done = self.execute(self.python, "-W", "error", "-c", code)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def command(self, *arguments, **options):
        return self.execute(self.folder / "bin" / "bottleneck", *arguments, **options)

    def execute(self, *command, **options):
        clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        options = {"cwd": self.folder, "env": clean, **options}
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, **options)


def make_environment(folder):
    venv.create(folder, with_pip=False)
    return Environment(folder)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Our package, built from a copy so that the checkout stays clean."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "bottleneck", source / "bottleneck", ignore=ignored)
    for path in ROOT.iterdir():
        if path.is_file() and (path.suffix in (".toml", ".md") or path.name == "LICENSE"):
            shutil.copy(path, source)
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, "-w", folder, source], check=True)
    [path] = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """The environment with the packages that probe for pydata's Bottleneck."""
    environment = make_environment(tmp_path_factory.mktemp("large"))
    environment.install("pandas", "xarray", "astropy", "click>=8.1", "msgspec>=0.20")
    return environment.site_packages()


@pytest.fixture(scope="module")
def alone(tmp_path_factory, wheel, large):
    """Our package, without pydata's."""
    environment = make_environment(tmp_path_factory.mktemp("alone"))
    environment.look_into(large)
    environment.install("--no-deps", wheel)
    return environment


@pytest.fixture(scope="module")
def ours_last(tmp_path_factory, wheel, large):
    """Pydata's Bottleneck first, then ours: ours owns `__init__`."""
    environment = make_environment(tmp_path_factory.mktemp("ours_last"))
    environment.look_into(large)
    environment.install("--no-deps", "Bottleneck")
    environment.install("--no-deps", wheel)
    return environment


@pytest.fixture(scope="module")
def theirs_last(tmp_path_factory, wheel, large):
    """Ours first, then pydata's Bottleneck: theirs owns `__init__`."""
    environment = make_environment(tmp_path_factory.mktemp("theirs_last"))
    environment.look_into(large)
    environment.install("--no-deps", wheel)
    environment.install("--no-deps", "Bottleneck")
    return environment


@pytest.fixture(params=["alone", "ours_last", "theirs_last"])
def environment(request):
    return request.getfixturevalue(request.param)


def test_the_wheel_holds_the_licence_the_types_and_the_templates(wheel):
    held = set(zipfile.ZipFile(wheel).namelist())
    templates = {path.name for path in (ROOT / "bottleneck/reports/templates").iterdir() if path.is_file()}
    assert templates
    assert {f"bottleneck/reports/templates/{name}" for name in templates} <= held
    assert "bottleneck/py.typed" in held
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in held)
    assert not {name for name in held if name.startswith(("tests/", "docs/", "benchmarks/", "examples/"))}


@pytest.mark.parametrize("user", USERS)
def test_other_packages_compute_correctly_and_without_a_warning(environment, user):
    environment.run(USERS[user])


@pytest.mark.parametrize("user", USERS)
def test_they_do_so_after_our_own_import(environment, user):
    environment.run("import bottleneck; bottleneck.__version__" + USERS[user])


def test_our_command_works(environment):
    for arguments in (["--help"], ["diagnose", "--help"], ["report", "--help"], ["doctor", "--help"]):
        done = environment.command(*arguments)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("Usage: bottleneck")


def test_a_pandas_that_is_older_computes_correctly(tmp_path, wheel):
    environment = make_environment(tmp_path / "older")
    environment.install("pandas<3", "numpy<2.4")
    environment.install("--no-deps", wheel)
    assert environment.run(PANDAS + "print(pd.__version__)").startswith("2.")


def test_alone_pandas_does_without_us(alone):
    code = "import bottleneck, pandas.core.nanops as n; print(bottleneck.__version__, n.bn)"
    assert alone.run(code) == "0.1.0 None"


def test_alone_pandas_leaves_one_entry_in_the_warnings_filters(alone):
    code = "import warnings, {}; print(sum('bottleneck' in str(entry[1]) for entry in warnings.filters))"
    assert alone.run(code.format("bottleneck")) == "0"
    assert alone.run(code.format("pandas")) == "1"


def test_ours_last_hands_on_the_compiled_functions(ours_last):
    code = (
        "import bottleneck as bn, pandas.core.nanops as n;"
        "assert n.bn is bn and bn.reduce.nansum is bn.nansum and bn.slow.nansum;"
        "assert bn.move_mean([1.0, 2.0, 4.0], 2).tolist()[1:] == [1.5, 3.0];"
        "from bottleneck import load, MeasurementError, bench, get_functions; print(bn.__version__)"
    )
    assert ours_last.run(code).startswith("1.")


def test_theirs_last_owns_the_name(theirs_last):
    code = "import bottleneck; print(hasattr(bottleneck, 'Pipeline'), hasattr(bottleneck, 'bench'))"
    assert theirs_last.run(code) == "False True"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("alone", "gives this package"),
        ("ours_last", "functions of pydata's Bottleneck 1."),
        ("theirs_last", "gives pydata's Bottleneck 1."),
    ],
)
def test_doctor_says_who_owns_the_name(name, words, request):
    done = request.getfixturevalue(name).command("doctor")
    assert words in done.stdout
    assert "PROBLEM  torch" in done.stdout
    assert done.returncode == 3


def test_a_target_imports_our_names_whoever_owns_theirs(environment, large, tmp_path):
    """With torch, which is the one of the environment that runs the tests."""
    (tmp_path / "job.py").write_text(
        "from bottleneck import Pipeline\ndef build(): return Pipeline(dataset=[], train_step=print)\n"
    )
    try:
        environment.look_into(large, sysconfig.get_path("purelib"))
        done = environment.command("diagnose", "job.py:build", cwd=tmp_path)
    finally:
        environment.look_into(large)
    assert done.stderr.startswith("Error: dataset is empty"), done.stderr
    assert done.returncode == 2
