"""The user's source with parts of it replaced: as a diff to be read, and as a patch that `git apply` takes.

Only places that are certain are changed. Changes for other places are reported.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from itertools import accumulate, groupby

from bottleneck.results.evidence import SourcePlace
from bottleneck.results.tuning import TuningResult

Parts = Sequence[tuple[SourcePlace, str]]
"""Places and their replacements."""
Read = Callable[[str], str]
"""Read the text of a file by its name, with its own line ends; raises OSError or ValueError if it cannot."""

_NEED_WORKERS = {"prefetch_factor": None, "persistent_workers": False, "multiprocessing_context": None, "timeout": 0}
"""Arguments that PyTorch refuses without workers, with the values that it accepts."""
_OF_TORCHDATA = frozenset({"snapshot_every_n_steps"})
"""Arguments that only torchdata's loader takes."""


def parts_of(settings: Mapping[str, object], source: Iterable[SourcePlace]) -> Parts:
    """Return the parts of a loader's call that give it other settings; empty if a place is unknown."""
    places = {place.name: place for place in source}
    if not all(name in places for name in settings):
        return ()
    if settings.get("num_workers") == 0:
        settings = {**settings, **{name: value for name, value in _NEED_WORKERS.items() if _given(places.get(name))}}
    texts = {name: f"{name}={value!r}" for name, value in settings.items()}
    return [(places[name], text if _given(places[name]) else f", {text}") for name, text in texts.items()]


def _given(place: SourcePlace | None) -> str:
    """Return the text at a place; empty for an insertion."""
    return "" if place is None else place.text[place.begin : place.end]


def note_on(parts: Parts) -> str:
    """Report values that a patch replaces and that are not literals: an option of the script then has no effect."""
    replaced = []
    for place, text in parts:
        found = re.match(rf"{re.escape(place.name)}\s*=\s*(.+)", _given(place), re.DOTALL)
        if found is not None and _varies(found[1]):
            replaced.append(f"{text} replaces {' '.join(found[1].split()):.60}")
    return f"{', '.join(replaced)}: if that is an option of the script, set it there instead." if replaced else ""


def _varies(value: str) -> bool:
    try:
        ast.literal_eval(value)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return True
    return False


# --- diffs ------------------------------------------------------------------------------------------------


_LEFT_OUT = " …"
"""In a diff on a screen: lines are left out, changed or not."""


def shown(parts: Parts) -> list[str]:
    """Return the lines of a diff of the places alone, without its head; empty if they contradict each other."""
    lines = {place.line + row: text for place, _ in parts for row, text in enumerate(place.text.split("\n"))}
    if len({place.file for place, _ in parts}) > 1:
        return []
    diffs = list[str]()
    for block in _blocks(sorted(lines)):
        before = {number: f"{lines[number]}\n" for number in block}
        after = _replaced(before, [part for part in parts if part[0].line in before])
        if after is None:
            return []
        found = changed([lines[number] for number in block], after.split("\n")[:-1])
        diffs += [_LEFT_OUT, *found] if diffs and found else found
    return diffs


def _blocks(numbers: Sequence[int]) -> Iterator[list[int]]:
    """Group numbers of lines that follow each other."""
    for _, group in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        yield [number for _, number in group]


def changed(before: Sequence[str], after: Sequence[str]) -> list[str]:
    """Return the lines of a diff without its head, and a mark for those that it leaves out."""
    found = list(difflib.unified_diff(before, after, lineterm="", n=1))[3:]
    return [_LEFT_OUT if line.startswith("@@") else line for line in found]


def patch(parts: Parts, read: Read) -> str:
    """Return a unified diff that `git apply` takes, with notes on prerequisites.

    It is empty if a place has changed since it was seen, or is in a Python file outside the working directory.
    """
    note, diffs = note_on(parts), list[str]()
    for name in dict.fromkeys(place.file for place, _ in parts):
        try:
            text = "" if name.startswith(("/", "..")) or ":" in name else read(name)
            lines = [*StringIO(text)]  # as git counts them, and not as `splitlines` does
            after = _replaced(dict(enumerate(lines, 1)), [part for part in parts if part[0].file == name])
            ast.parse(after or "(")
        except (OSError, ValueError, SyntaxError, MemoryError, RecursionError):
            return ""
        diffs += difflib.unified_diff(lines, [*StringIO(after)], f"a/{name}", f"b/{name}")
    return "".join([f"# {note}\n" if note and diffs else "", *_ended(diffs)])


def _ended(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def _replaced(lines: Mapping[int, str], parts: Parts) -> str | None:
    """Return the text of some lines with parts of it replaced; None if a place has changed.

    What is inserted at one place comes in the order in which it is given.
    """
    starts = dict(zip(lines, accumulate(map(len, lines.values()), initial=0), strict=False))
    found: dict[tuple[int, int], str] = {}
    for place, text in parts:
        rows = [lines.get(place.line + row, "\0").rstrip("\r\n") for row in range(place.text.count("\n") + 1)]
        if rows != place.text.split("\n") or not 0 <= place.begin <= place.end <= len(place.text):
            return None
        before = (place.text[:at].split("\n") for at in (place.begin, place.end))
        begin, end = (starts[place.line + len(above) - 1] + len(above[-1]) for above in before)
        found[begin, end] = found.get((begin, end), "") + text
    after = "".join(lines.values())
    for (begin, end), text in sorted(found.items(), reverse=True):
        after = after[:begin] + text + after[end:]
    return after


# --- of a tuning --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Patch:
    """Changes to files below the working directory."""

    text: str
    """A unified diff that `git apply` takes; empty if nothing can be changed."""
    left: tuple[str, ...]
    """Lines of the tuning that are not in it."""


def patch_of(result: TuningResult, read: Read) -> Patch:
    """Return the patch that makes the job the tuned one."""
    source = result.before.evidence.source if result.before else ()
    parts, left = list[tuple[SourcePlace, str]](), list[str]()
    for line in result.lines:
        found = parts_of(_settings_of(line), source)
        if patch(found, read):
            parts += found
        else:
            left.append(line)
    text = patch(parts, read)
    return Patch(text, tuple(left if text else result.lines))


def in_one_call(lines: Iterable[str]) -> list[str]:
    """Return the lines of a tuning, with the loader's settings in one call, at the place of the first."""
    found, settings = list[str](), dict[str, object]()
    for line in lines:
        given = _settings_of(line)
        if not given:
            found.append(line)
        elif not settings:
            found.append("")
        settings |= given
    return [line or loader_call(settings, settings) for line in found]


def loader_call(given: Mapping[str, object], settings: Iterable[str]) -> str:
    """Return the call of a loader with some arguments, in place of dots for all others.

    Args:
        given: The arguments.
        settings: Names of those that its class has to take: PyTorch's own refuses torchdata's.
    """
    loader = "DataLoader" if _OF_TORCHDATA.isdisjoint(settings) else "StatefulDataLoader"
    return f"{loader}({', '.join(['...', *(f'{name}={value!r}' for name, value in given.items())])})"


def _settings_of(line: str) -> dict[str, object]:
    """Return the arguments in `DataLoader(..., name=value)`; none of a line that is more than that."""
    try:
        body = ast.parse(line).body
    except (SyntaxError, ValueError, MemoryError, RecursionError):  # of a file that somebody sent
        return {}
    call = body[0].value if len(body) == 1 and isinstance(body[0], ast.Expr) else None
    if not isinstance(call, ast.Call) or [*map(ast.unparse, call.args)] != ["..."]:
        return {}
    values = [(keyword.arg, keyword.value) for keyword in call.keywords]
    constant = [(name, value.value) for name, value in values if name and isinstance(value, ast.Constant)]
    return dict(constant) if len(constant) == len(values) else {}
