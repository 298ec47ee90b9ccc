"""The settings of the loader that a tuning has kept, as a patch of the user's source.

Only what stands at a place that is surely meant is changed. What is to be changed elsewhere is said.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from bottleneck.results.evidence import SourcePlace
from bottleneck.results.tuning import TuningResult

_NEED_WORKERS = {"prefetch_factor": None, "persistent_workers": False, "multiprocessing_context": None}
"""What PyTorch refuses without workers, with the values that it takes."""


@dataclass(frozen=True)
class Patch:
    """Changes to files below the working directory."""

    text: str
    """A unified diff that `git apply` takes; empty where nothing can be changed."""
    left: tuple[str, ...]
    """Lines of the tuning that are not in it."""


@dataclass
class _File:
    """A file and what is to be replaced in it, by its offsets."""

    text: str
    replaced: dict[tuple[int, int], list[str]] = field(default_factory=dict)

    def after(self) -> str:
        """The text with all of it replaced; what is inserted at one place comes in the order in which it was noted."""
        found = self.text
        for (begin, end), texts in sorted(self.replaced.items(), reverse=True):
            found = found[:begin] + "".join(texts) + found[end:]
        return found


def patch_of(result: TuningResult, read: Callable[[str], str]) -> Patch:
    """The patch that makes the job the tuned one.

    Args:
        result: The tuning.
        read: Gives the text of a file by its name, with its own line ends; raises OSError or ValueError where it
            cannot be read.
    """
    seen = result.before.evidence.source if result.before is not None else ()
    places, files, left = {place.name: place for place in seen}, dict[str, _File](), list[str]()
    for line in result.lines:
        settings = _settings_of(line)
        if not settings or not all(_replace(files, places.get(name), read) for name in settings):
            left.append(line)
            continue
        if settings.get("num_workers") == 0:
            settings |= {name: value for name, value in _NEED_WORKERS.items() if _is_given(places.get(name))}
        for name, value in settings.items():
            place = places[name]
            text = f"{name}={value!r}" if _is_given(place) else f", {name}={value!r}"
            _note(files[place.file], place, text)
    if not all(_is_python(file.after()) for file in files.values()):
        return Patch("", tuple(result.lines))
    return Patch("".join(_diff(name, file) for name, file in files.items()), tuple(left))


def _is_python(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return True


def _settings_of(line: str) -> dict[str, object]:
    """The arguments in `DataLoader(..., name=value)`; none of a line that is more than that."""
    body = ast.parse(line).body
    call = body[0].value if len(body) == 1 and isinstance(body[0], ast.Expr) else None
    if not isinstance(call, ast.Call) or len(call.args) != 1 or not _is_dots(call.args[0]):
        return {}
    values = [(keyword.arg, keyword.value) for keyword in call.keywords]
    constant = [(name, value.value) for name, value in values if name and isinstance(value, ast.Constant)]
    return dict(constant) if len(constant) == len(values) else {}


def _is_dots(argument: ast.expr) -> bool:
    return isinstance(argument, ast.Constant) and argument.value is ...


def _is_given(place: SourcePlace | None) -> bool:
    return place is not None and place.begin < place.end


def _replace(files: dict[str, _File], place: SourcePlace | None, read: Callable[[str], str]) -> bool:
    """Whether a place is there as it was seen, in a file below the working directory; the file is read once."""
    if place is None or place.file.startswith(("/", "..")) or ":" in place.file:
        return False
    try:
        file = files.setdefault(place.file, _File(read(place.file)))
    except (OSError, ValueError):
        return False
    there = _lines(file.text)[place.line - 1 : place.line + place.text.count("\n")]
    return [line.rstrip("\r\n") for line in there] == place.text.split("\n")


def _lines(text: str) -> list[str]:
    """The lines of a text, with their ends: as git counts them, and not as `splitlines` does."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _note(file: _File, place: SourcePlace, text: str) -> None:
    lines = _lines(file.text)
    begin, end = (_offset(lines, place, at) for at in (place.begin, place.end))
    file.replaced.setdefault((begin, end), []).append(text)


def _offset(lines: list[str], place: SourcePlace, at: int) -> int:
    """Where a character of a place is in its file, whose line ends may be longer."""
    before = place.text[:at]
    row = place.line - 1 + before.count("\n")
    return sum(map(len, lines[:row])) + len(before) - (before.rfind("\n") + 1)


def _diff(name: str, file: _File) -> str:
    made = difflib.unified_diff(_lines(file.text), _lines(file.after()), f"a/{name}", f"b/{name}")
    return "".join(_ended(made))


def _ended(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
