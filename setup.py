"""A wheel holds bottleneck/__init__.py as bottleneck.py; all else is in pyproject.toml.

pydata's Bottleneck has a bottleneck/__init__.py too. Were it in both wheels, the one installed last would overwrite
the other's, and removing either would take it away from both: `import pandas` fails then. A module beside the folder
collides with nothing: Python takes the folder if it has an __init__.py, which is pydata's, and otherwise the module.
"""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildPy(build_py):
    """Builds as always, then moves the one file."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            package = Path(self.build_lib, "bottleneck")
            (package / "__init__.py").replace(package.with_suffix(".py"))


setup(cmdclass={"build_py": BuildPy})
