"""A wheel holds bottleneck/__init__.py as bottleneck.py; links go to the repository that it was released from.

pydata's Bottleneck has a bottleneck/__init__.py too. Were it in both wheels, the one installed last would overwrite
the other's, and removing either would take it away from both: `import pandas` fails then. A module beside the folder
collides with nothing: Python takes the folder if it has an __init__.py, which is pydata's, and otherwise the module.

The release workflow says in REPOSITORY_URL where it runs. An index shows the README by itself, where links to files of
the repository would lead nowhere, so they become links to the files of that version there.
"""

import os
import re
import runpy
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
LINK = re.compile(r"(?P<before>!?\]\(|(?:src|srcset|href)=\")(?![a-z]+:|#)(?P<target>[^)\"\s]+)")
PICTURES = (".svg", ".png")


class BuildPy(build_py):
    """Builds as always, then moves the one file."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            package = Path(self.build_lib, "bottleneck")
            (package / "__init__.py").replace(package.with_suffix(".py"))


def urls(repository: str, tag: str) -> dict[str, str]:
    """Links of the package; none where nobody says which repository it comes from."""
    if not repository:
        return {}
    return {
        "Homepage": repository,
        "Documentation": f"{repository}/blob/{tag}/docs/index.md",
        "Changelog": f"{repository}/blob/{tag}/CHANGELOG.md",
        "Issues": f"{repository}/issues",
    }


def with_absolute_links(text: str, repository: str, tag: str) -> str:
    """The README as an index shows it: without a repository, as it is."""

    def absolute(link: re.Match[str]) -> str:
        kind = "raw" if link["target"].endswith(PICTURES) else "blob"
        return f"{link['before']}{repository}/{kind}/{tag}/{link['target']}"

    return LINK.sub(absolute, text) if repository else text


if __name__ == "__main__":
    repository = os.environ.get("REPOSITORY_URL", "").rstrip("/")
    tag = f"v{runpy.run_path(str(ROOT / 'bottleneck' / '_pydata.py'))['VERSION']}"
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    setup(
        cmdclass={"build_py": BuildPy},
        project_urls=urls(repository, tag),
        long_description=with_absolute_links(readme, repository, tag),
        long_description_content_type="text/markdown",
    )
