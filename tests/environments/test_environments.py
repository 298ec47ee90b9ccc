"""Real environments with our package beside pandas, xarray, astropy and pydata's Bottleneck.

Each is a separate virtual environment, with our package installed from its wheel. The large packages are
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
        self.pip("install", "-q", "--no-warn-conflicts", *requirements)

    def remove(self, distribution):
        self.pip("uninstall", "-q", "-y", distribution)

    def pip(self, *arguments):
        pip = [sys.executable, "-m", "pip", "--python", self.python, "--disable-pip-version-check"]
        subprocess.run([*pip, *arguments], check=True)

    def site_packages(self):
        return Path(self.run("import sysconfig; print(sysconfig.get_path('purelib'))"))

    def look_into(self, *folders):
        """Let it import packages installed elsewhere, after its own."""
        (self.site_packages() / "elsewhere.pth").write_text("".join(f"{folder}\n" for folder in folders))

    def run(self, code):
        """Return the output of `code`, with warnings as errors."""
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
    shutil.copytree(ROOT / "torch_bottleneck", source / "torch_bottleneck", ignore=ignored)
    for path in ROOT.iterdir():
        if path.is_file() and (path.suffix in (".toml", ".md") or path.name in ("LICENSE", "setup.py")):
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


OWNERS = {
    "+ours": "ours",
    "+ours +theirs": "theirs",
    "+theirs +ours": "theirs",
    "+ours +theirs -theirs": "ours",
    "+theirs +ours -theirs": "ours",
    "+ours +theirs -ours": "theirs",
    "+theirs +ours -ours": "theirs",
    "+ours -ours": "none",
}
"""Owner of the name `bottleneck` after some steps: `+` installs, `-` removes."""
WITH_OURS = [steps for steps in OWNERS if "-ours" not in steps]
DISTRIBUTIONS = {"ours": "torch-bottleneck", "theirs": "Bottleneck"}


@pytest.fixture(scope="module")
def after(tmp_path_factory, wheel, large):
    """Makes the environment that is there after some steps; each is made once, with everything imported in between."""
    made = {}

    def make(steps):
        if steps in made:
            return made[steps]
        environment = make_environment(tmp_path_factory.mktemp("environment"))
        environment.look_into(large)
        for step in steps.split():
            if step[0] == "+":
                environment.install("--no-deps", wheel if step == "+ours" else "Bottleneck")
            else:
                environment.run(
                    "import bottleneck.api, bottleneck.reduce" if "+theirs" in steps else "import bottleneck.api"
                )
                environment.remove(DISTRIBUTIONS[step[1:]])
        made[steps] = environment
        return environment

    return make


def test_the_wheel_holds_the_licence_the_types_and_the_templates(wheel):
    held = set(zipfile.ZipFile(wheel).namelist())
    templates = {path.name for path in (ROOT / "bottleneck/reports/templates").iterdir() if path.is_file()}
    assert templates
    assert {f"bottleneck/reports/templates/{name}" for name in templates} <= held
    assert {"bottleneck.py", "bottleneck/py.typed", "torch_bottleneck/py.typed"} <= held
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in held)
    assert not {name for name in held if name.startswith(("tests/", "docs/", "benchmarks/", "examples/", "setup"))}


def test_the_wheel_holds_no_file_of_pydatas(wheel, after):
    installed = {
        str(path.relative_to(folder))
        for folder in [after("+theirs +ours -ours").site_packages()]
        for path in folder.rglob("*")
    }
    files = {name for name in installed if name.startswith("bottleneck/") and "__pycache__" not in name}
    assert "bottleneck/__init__.py" in files
    assert not files & set(zipfile.ZipFile(wheel).namelist())


@pytest.mark.parametrize("steps", [steps for steps in OWNERS if OWNERS[steps] != "none"])
@pytest.mark.parametrize("user", USERS)
def test_other_packages_compute_correctly_and_without_a_warning(steps, user, after):
    after(steps).run(USERS[user])


@pytest.mark.parametrize("steps", ["+ours", "+theirs +ours"])
@pytest.mark.parametrize("user", USERS)
def test_they_do_so_after_our_own_import(steps, user, after):
    after(steps).run("import bottleneck.job.marks, torch_bottleneck; bottleneck.__version__" + USERS[user])


@pytest.mark.parametrize("steps", OWNERS)
def test_the_owner_of_the_name_is_who_should_be(steps, after):
    code = (
        "import importlib.util as u; there = u.find_spec('bottleneck') is not None\n"
        "if there: import bottleneck as bn, pandas.core.nanops as n; print(hasattr(bn, 'move_mean'), n.bn is bn)\n"
        "print(there)"
    )
    wanted = {"ours": "False False\nTrue", "theirs": "True True\nTrue", "none": "False"}
    assert after(steps).run(code) == wanted[OWNERS[steps]]
    after(steps).run(PANDAS)


@pytest.mark.parametrize("steps", WITH_OURS)
def test_ours_is_there_under_its_own_name_and_as_a_command(steps, after):
    environment = after(steps)
    assert (
        environment.run("from torch_bottleneck import MeasurementError, load; print(load.__module__)")
        == "bottleneck.api"
    )
    if OWNERS[steps] == "ours":
        environment.run(
            "from bottleneck import MeasurementError, load; import bottleneck; assert bottleneck.load is load"
        )
    for arguments in (["--help"], ["diagnose", "--help"], ["report", "--help"], ["doctor", "--help"]):
        done = environment.command(*arguments)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("Usage: bottleneck")
    for module in ("bottleneck", "torch_bottleneck"):
        done = environment.execute(environment.python, "-m", module, "--version")
        assert (done.stdout.split()[0], done.stderr) == ("bottleneck,", "")


def test_ours_is_there_where_theirs_is_in_another_place(after, large, tmp_path):
    environment = make_environment(tmp_path / "elsewhere")
    environment.install("--no-deps", "Bottleneck")
    environment.look_into(large, after("+ours").site_packages())
    environment.run("from torch_bottleneck import load, MeasurementError")
    done = environment.execute(environment.python, "-m", "torch_bottleneck", "doctor")
    assert "gives pydata's Bottleneck 1." in done.stdout


def test_a_pandas_that_is_older_computes_correctly(tmp_path, wheel):
    environment = make_environment(tmp_path / "older")
    environment.install("pandas<3", "numpy<2.4")
    environment.install("--no-deps", wheel)
    assert environment.run(PANDAS + "print(pd.__version__)").startswith("2.")


def test_alone_pandas_leaves_one_entry_in_the_warnings_filters(after):
    code = "import warnings, {}; print(sum('bottleneck' in str(entry[1]) for entry in warnings.filters))"
    assert after("+ours").run(code.format("bottleneck")) == "0"
    assert after("+ours").run(code.format("pandas")) == "1"


@pytest.mark.parametrize("steps", WITH_OURS)
def test_doctor_says_who_owns_the_name(steps, after):
    done = after(steps).command("doctor")
    words = {
        "ours": "ok       import name    `import bottleneck` gives this package",
        "theirs": "gives pydata's Bottleneck 1.",
    }
    assert words[OWNERS[steps]] in done.stdout
    assert ("from torch_bottleneck import Pipeline" in " ".join(done.stdout.split())) == (OWNERS[steps] == "theirs")
    assert "PROBLEM  torch" in done.stdout
    assert done.returncode == 3


@pytest.mark.parametrize(
    ("steps", "lost", "words", "repair"),
    [
        ("+theirs +ours", "bottleneck/__init__.py", "although pydata's Bottleneck 1.", "Bottleneck"),
        ("+ours", "bottleneck.py", "finds a folder without an __init__.py", "torch-bottleneck"),
    ],
)
def test_doctor_prints_the_repair_of_an_environment_that_lost_a_file(
    steps, lost, words, repair, tmp_path, wheel, large
):
    environment = make_environment(tmp_path / "damaged")
    environment.look_into(large)
    environment.install("--no-deps", *(["Bottleneck"] if "theirs" in steps else []), wheel)
    (environment.site_packages() / lost).unlink()
    said = " ".join(environment.command("doctor").stdout.split())
    assert words in said
    command = f"pip install --force-reinstall --no-deps {repair}"
    assert command in said
    environment.pip(*command.split()[1:-1], wheel if repair == "torch-bottleneck" else repair)
    assert words not in " ".join(environment.command("doctor").stdout.split())
    environment.run(PANDAS)


@pytest.mark.parametrize("steps", WITH_OURS)
def test_a_target_imports_our_names_whoever_owns_theirs(steps, after, large, tmp_path):
    """With torch, which is the one of the environment that runs the tests."""
    (tmp_path / "job.py").write_text(
        "from bottleneck import Pipeline\ndef build(): return Pipeline(dataset=[], train_step=print)\n"
    )
    environment = after(steps)
    try:
        environment.look_into(large, sysconfig.get_path("purelib"))
        done = environment.command("diagnose", "job.py:build", cwd=tmp_path)
    finally:
        environment.look_into(large)
    assert done.stderr.startswith("Error: dataset is empty"), done.stderr
    assert done.returncode == 2
