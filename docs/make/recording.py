"""Record a command in a terminal: `python -m docs.make.recording docs/pictures/demo.jsonl bottleneck demo`.

What it prints is kept as it comes, one line for each piece: seconds since the start, and the text.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import struct
import sys
import termios
import time
from pathlib import Path

COLUMNS, ROWS = 80, 40
_ENVIRONMENT = {"TERM": "xterm-256color", "COLORTERM": "truecolor", "COLUMNS": str(COLUMNS), "LINES": str(ROWS)}


def record(command: list[str]) -> list[tuple[float, str]]:
    """Run a command in a terminal, and return its output, with seconds since it began.

    Raises:
        RuntimeError: It failed.
    """
    began, pieces = time.monotonic(), []
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe(command[0], command, {**os.environ, **_ENVIRONMENT})
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    left = b""
    while True:
        try:
            read = os.read(terminal, 1 << 16)
        except OSError:  # the other end is closed
            read = b""
        if not read:
            break
        whole, left = _whole(left + read)
        pieces.append((round(time.monotonic() - began, 3), whole))
    os.close(terminal)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {status}")
    return pieces


def _whole(read: bytes) -> tuple[str, bytes]:
    """Cut in front of a character of which bytes are missing."""
    for length in range(len(read), max(-1, len(read) - 4), -1):
        try:
            return read[:length].decode(), read[length:]
        except UnicodeDecodeError:
            continue
    raise RuntimeError("it prints something that is no UTF-8")


def write(path: Path, pieces: list[tuple[float, str]]) -> None:
    """Keep a recording."""
    lines = (json.dumps(piece, ensure_ascii=False) for piece in pieces)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def read(path: Path) -> list[tuple[float, str]]:
    """Read a recording that was kept."""
    return [tuple(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


if __name__ == "__main__":
    write(Path(sys.argv[1]), record(sys.argv[2:]))
