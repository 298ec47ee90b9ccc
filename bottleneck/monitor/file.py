"""The file of events, appended at least each second; if that fails, the writing ends and not the job."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from itertools import chain
from pathlib import Path

from bottleneck.errors import ResultFileError, UsageError
from bottleneck.results.files import reason
from bottleneck.results.monitor import Event, Monitored, as_line


def path_of_rank(path: str | os.PathLike[str], rank: int) -> Path:
    """Return the file of a rank: `path` for the first, `events.rank1.jsonl` for the second."""
    given = Path(path)
    return given if rank == 0 else given.with_name(f"{given.stem}.rank{rank}{given.suffix}")


def files_of_ranks(path: str | os.PathLike[str]) -> list[Path]:
    """Return the files of all ranks of a job, given that of the first rank, which comes first."""
    given = Path(path)
    others = given.parent.glob(f"{given.stem}.rank*{given.suffix}")
    return [given, *sorted(other for other in others if other.stem[len(given.stem) + 5 :].isdecimal())]


def read_events(path: str | os.PathLike[str]) -> Monitored:
    """Return the totals of a file of events, and of those of the other ranks next to it.

    Raises:
        ResultFileError: A file cannot be read.
    """
    try:
        with ExitStack() as opened:
            files = [opened.enter_context(open(file, "rb")) for file in files_of_ranks(path)]
            return Monitored.of(chain.from_iterable(files))
    except OSError as error:
        raise ResultFileError(
            f"Cannot read {os.fspath(path)}: {reason(error)}.", "Give the file that `bottleneck monitor` writes."
        ) from None


class EventFile:
    """A file to which events are appended as lines.

    Args:
        path: Path of the file; events of earlier runs in it are kept.
        tell: Gets a sentence if the writing ends.
        write: Writes to a descriptor, as `os.write` does.

    Raises:
        UsageError: The file cannot be opened.
    """

    def __init__(
        self,
        path: Path,
        tell: Callable[[str], None],
        write: Callable[[int, bytes], int] = os.write,
    ) -> None:
        self._path, self._tell, self._write = path, tell, write
        try:
            self._descriptor: int | None = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
            size = os.fstat(self._descriptor).st_size
            self._begins = b"\n" if size and os.pread(self._descriptor, 1, size - 1) != b"\n" else b""
        except (OSError, ValueError) as error:
            raise UsageError(
                f"Cannot write {os.fspath(path)!r}: {reason(error)}.", "Give a file in a folder that you may write to."
            ) from None

    def append(self, events: Iterable[Event]) -> None:
        """Append events, unless the writing has ended."""
        lines = b"".join(map(as_line, events))
        if self._descriptor is None or not lines:
            return
        lines, self._begins = self._begins + lines, b""
        try:
            if os.fstat(self._descriptor).st_nlink == 0:
                raise FileNotFoundError("it was removed")
            while lines:
                lines = lines[self._write(self._descriptor, lines) :]
        except OSError as error:
            self.close()
            self._tell(f"bottleneck stopped writing to {self._path}: {reason(error)}. The job continues.")

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
