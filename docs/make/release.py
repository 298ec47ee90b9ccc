"""The notes of a release, from the changelog: `python -m docs.make.release v0.2.0`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from bottleneck._pydata import VERSION

CHANGELOG = Path(__file__).resolve().parents[2] / "CHANGELOG.md"


def notes(tag: str, changelog: str, version: str = VERSION) -> str:
    """The section of the changelog about a tag's version.

    Raises:
        ValueError: The tag is not that of the package's version, or the changelog has no section with a date for it.
    """
    if tag != f"v{version}":
        raise ValueError(f"The tag is {tag}, and the version in bottleneck/_pydata.py is {version}.")
    found = re.search(
        rf"^## {re.escape(version)} - \d{{4}}-\d\d-\d\d\n(.*?)(?=^## |\Z)", changelog, flags=re.MULTILINE | re.DOTALL
    )
    if found is None or not found[1].strip():
        raise ValueError(f"CHANGELOG.md has no section '## {version} - YYYY-MM-DD'.")
    return found[1].strip() + "\n"


if __name__ == "__main__":
    try:
        sys.stdout.write(notes(sys.argv[1], CHANGELOG.read_text(encoding="utf-8")))
    except ValueError as error:
        sys.exit(str(error))
