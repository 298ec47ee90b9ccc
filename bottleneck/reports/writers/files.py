"""The files of a profile and of traces, in folders that the user names."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path

from bottleneck.errors import UsageError
from bottleneck.results.files import reason, write_file
from bottleneck.results.traces import TraceFile


def check_folder(folder: str | os.PathLike[str], what: str = "flamegraphs") -> None:
    """Refuse a folder that could not be written to later; nothing is left there.

    Raises:
        UsageError: It is a file, its name is not possible, or there is no permission.
    """
    try:
        why = _why_not(os.fspath(folder))
    except (OSError, ValueError) as error:
        why = reason(error)
    if why is not None:
        raise _refused(folder, what, why)


def _why_not(name: str) -> str | None:
    if not name.strip():
        return "the name is empty"
    there = Path(os.path.realpath(name))
    while not there.exists() and there != there.parent:
        there = there.parent
    if not there.is_dir():
        return "it is a file" if there == Path(os.path.realpath(name)) else f"{there.name!r} on the way is a file"
    # Permissions alone do not tell: a file system may be read-only.
    probe = there / f".bottleneck.{secrets.token_hex(4)}.tmp"
    os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
    probe.unlink()
    return None


def _refused(folder: str | os.PathLike[str], what: str, why: str) -> UsageError:
    return UsageError(
        f"Cannot write the {what} to {os.fspath(folder)!r}: {why}.",
        "Give a folder that you may write to; it is made if it is not there.",
    )


def write_profile(files: Mapping[str, str], folder: str | os.PathLike[str]) -> tuple[Path, ...]:
    """Write the files of a profile, by their names; return them.

    Raises:
        UsageError: One of them could not be written.
    """
    return _write(folder, "flamegraphs", files.items())


def write_traces(traces: Iterable[TraceFile], folder: str | os.PathLike[str]) -> tuple[Path, ...]:
    """Write one file for each traced experiment, such as `device.json.gz`; return the files.

    Raises:
        UsageError: One of them could not be written.
    """
    return _write(folder, "traces", ((f"{trace.experiment}.json.gz", trace.content) for trace in traces))


def _write(folder: str | os.PathLike[str], what: str, files: Iterable[tuple[str, str | bytes]]) -> tuple[Path, ...]:
    place = Path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _refused(folder, what, reason(error)) from error
    written = []
    for name, content in files:
        write_file(place / name, content)
        written.append(place / name)
    return tuple(written)
