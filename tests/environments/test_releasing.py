"""A release: its links, its notes, and the Pythons that it is tried on."""

import re
import runpy
from pathlib import Path

import pytest
import yaml

from docs.make.release import notes

ROOT = Path(__file__).parents[2]
SETUP = runpy.run_path(str(ROOT / "setup.py"), run_name="setup")
README = (ROOT / "README.md").read_text(encoding="utf-8")
HERE = "https://code.example/owner/name"
LOG = """# Changelog

## Unreleased

- Later.

## 0.2.0 - 2026-12-01

### Added

- This.

## 0.1.0

- Before.
"""


def test_the_readme_of_the_package_links_files_of_its_version():
    shown = SETUP["with_absolute_links"](README, HERE, "v0.2.0")
    assert f'src="{HERE}/raw/v0.2.0/docs/pictures/' in shown
    assert f"]({HERE}/blob/v0.2.0/docs/method.md)" in shown
    links = re.findall(r"\]\(([^)\s]+)\)|(?:src|srcset|href)=\"([^\"]+)\"", shown)
    assert not [link for link in (one or other for one, other in links) if not link.startswith(("https:", "#"))]
    assert re.sub(rf"{HERE}/(raw|blob)/v0.2.0/", "", shown) == README


def test_without_a_repository_no_link_is_made_up():
    assert SETUP["with_absolute_links"](README, "", "v0.2.0") == README
    assert SETUP["urls"]("", "v0.2.0") == {}
    assert SETUP["urls"](HERE, "v0.2.0")["Changelog"] == f"{HERE}/blob/v0.2.0/CHANGELOG.md"


def test_the_notes_are_the_section_of_the_version():
    assert notes("v0.2.0", LOG, "0.2.0") == "### Added\n\n- This.\n"


@pytest.mark.parametrize(
    ("tag", "version", "said"),
    [
        ("v0.2.1", "0.2.0", "The tag is v0.2.1"),
        ("v0.3.0", "0.3.0", "no section '## 0.3.0"),
        ("v0.1.0", "0.1.0", "no section"),
    ],
)
def test_a_tag_that_does_not_fit_is_refused(tag, version, said):
    with pytest.raises(ValueError, match=said):
        notes(tag, LOG, version)


def test_the_wheel_is_tried_on_every_promised_python_before_it_is_published():
    jobs = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8"))["jobs"]
    promised = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', (ROOT / "pyproject.toml").read_text())
    assert jobs["demo"]["strategy"]["matrix"]["python"] == promised
    assert [jobs[job].get("needs") for job in ("build", "demo", "publish", "notes")] == [
        None,
        "build",
        "demo",
        "publish",
    ]
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
