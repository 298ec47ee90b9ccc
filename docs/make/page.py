"""A markdown page whose commands are run, and whose blocks of output are what they print.

A comment in front of a fenced block says what the block holds:

    <!-- run -->                     commands, run in order; each of these replaces what the next ones show
    <!-- run quietly: COMMAND -->    a command that readers do by hand; no block follows
    <!-- shown -->                   all that the last commands printed
    <!-- shown: cached at | stage -->    of that the paragraphs that begin so, in this order
    <!-- shown until: <details> -->  of that what comes before a text
    <!-- file: NAME -->              a file of the folder
    <!-- diff: OLD NEW -->           what changes between two files of the folder
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_PART = re.compile(
    r"<!-- (?P<what>run quietly|run|shown until|shown|file|diff)(?:: (?P<detail>.*?))? -->\n"
    r"(?:(?P<fence>`{3,})(?P<language>\w*)\n(?P<body>.*?)^(?P=fence)$)?",
    flags=re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Part:
    """A marked block of a page."""

    what: str
    detail: str
    language: str
    body: str

    @property
    def commands(self) -> list[str]:
        """The commands of a part that is run; none of another."""
        if self.what == "run quietly":
            return [self.detail]
        return self.body.strip().splitlines() if self.what == "run" else []


def parts(page: str) -> list[Part]:
    """The marked blocks of a page, in order."""
    return [_part(found) for found in _PART.finditer(page)]


def write_anew(page: str, folder: Path, run: Callable[[str], str | None]) -> str:
    """The page with the output of its commands.

    Args:
        page: The markdown.
        folder: Where files are read from, before any command is run.
        run: Runs a command and returns what it prints; None leaves what the page shows of it.

    Raises:
        ValueError: A paragraph that is to be shown was not printed.
    """
    files = {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir() if path.is_file()}
    printed: str | None = ""

    def renewed(found: re.Match[str]) -> str:
        nonlocal printed
        part = _part(found)
        if part.what.startswith("run"):
            outputs = [run(command) for command in part.commands]
            printed = None if None in outputs else "".join(output or "" for output in outputs)
            return found.group()
        if part.what.startswith("shown") and printed is None:
            return found.group()
        body = written(part, files) if printed is None or part.what in ("file", "diff") else shown(part, printed)
        head, fence = found.group().partition("\n")[0], found["fence"]
        return f"{head}\n{fence}{part.language}\n{body.rstrip()}\n{fence}"

    return _PART.sub(renewed, page)


def shown(part: Part, printed: str) -> str:
    """Return the part of an output that a block shows."""
    if part.what == "shown until":
        return printed.partition(part.detail)[0]
    if not part.detail:
        return printed
    paragraphs = printed.split("\n\n")
    chosen = []
    for beginning in part.detail.split(" | "):
        fitting = [text for text in paragraphs if text.strip().startswith(beginning)]
        if not fitting:
            raise ValueError(f"nothing was printed that begins with {beginning!r}")
        chosen.append(fitting[0].strip("\n"))
    return "\n\n".join(chosen)


def written(part: Part, files: dict[str, str]) -> str:
    """Return the text of files that a block shows."""
    if part.what == "file":
        return files[part.detail]
    old, new = part.detail.split()
    lines = difflib.unified_diff(files[old].splitlines(), files[new].splitlines(), lineterm="", n=3)
    return "\n".join(list(lines)[2:])  # without the names


def _part(found: re.Match[str]) -> Part:
    return Part(found["what"], found["detail"] or "", found["language"] or "", found["body"] or "")
