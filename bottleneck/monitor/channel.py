"""The pipe from the workers to the main process that tells how batches were made; no worker ever waits for it."""

from __future__ import annotations

import marshal
import os
import struct
from collections import OrderedDict
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe

from bottleneck.monitor.making import Made, plain_index

try:
    import fcntl
except ImportError:
    fcntl = None  # type: ignore[assignment]  # Windows has none

_HEADER = struct.Struct("<IIq")
MAX_MESSAGE = 4096
"""Writes of so many bytes are whole or nothing (PIPE_BUF), whoever else writes."""
_ROOM = 1 << 20
"""Bytes that the pipe may hold, where the system lets it."""
_KEPT = 2048
"""Batches of all workers that are remembered: more than queues ever hold."""
_CHUNK = 1 << 16


class Sender:
    """Sends how a batch was made; a part is left out, or all of it, rather than that a worker waits.

    Args:
        connection: The end to write to. Pickled only on its way to a worker.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __call__(self, made: Made, number: int | None) -> None:
        with suppress(OSError, ValueError):  # full, or nobody reads any more
            try:
                content = marshal.dumps(tuple(made))
            except ValueError:  # such as indices of numpy's
                content = marshal.dumps(tuple(made._replace(indices=[plain_index(one) for one in made.indices])))
            if len(content) > MAX_MESSAGE - _HEADER.size:
                content = marshal.dumps(tuple(made._replace(indices=None, slowest=None)))
            header = _HEADER.pack(len(content), made.pid, -1 if number is None else number)
            if len(header) + len(content) <= MAX_MESSAGE:
                os.write(self._connection.fileno(), header + content)


class Channel:
    """The pipe, and what came through it last."""

    def __init__(self) -> None:
        self._reader, self._writer = Pipe(duplex=False)
        for end in (self._reader, self._writer):
            os.set_blocking(end.fileno(), False)
        with suppress(OSError, AttributeError):  # Linux has it, with a limit
            fcntl.fcntl(self._writer.fileno(), fcntl.F_SETPIPE_SZ, _ROOM)
        self.sender = Sender(self._writer)
        self._rest = b""
        self._made: OrderedDict[tuple[int, int], bytes] = OrderedDict()

    def drain(self) -> None:
        """Take in all that has come."""
        while chunk := self._read():
            content, at = self._rest + chunk, 0
            while at + _HEADER.size <= len(content):
                length, pid, number = _HEADER.unpack_from(content, at)
                end = at + _HEADER.size + length
                if end > len(content):
                    break
                self._made.pop((pid, number), None)
                self._made[pid, number] = content[at + _HEADER.size : end]
                at = end
            self._rest = content[at:]
            while len(self._made) > _KEPT:
                self._made.popitem(last=False)

    def _read(self) -> bytes:
        try:
            return os.read(self._reader.fileno(), _CHUNK)
        except OSError:  # nothing is there, or it was closed
            return b""

    def find(self, pids: list[int], number: int | None, until_s: float) -> Made | None:
        """Return how a batch was made; None where that is not known.

        Args:
            pids: The workers of its loader.
            number: In its pass; None: it is the one that was ready last.
            until_s: When the loop had it.
        """
        if number is not None:
            found = [self._made[pid, number] for pid in pids if (pid, number) in self._made]
        else:
            found = [content for (pid, _), content in self._made.items() if pid in pids]
        made = [one for one in (Made(*marshal.loads(content)) for content in found) if one.ended_s <= until_s]
        return max(made, key=lambda one: one.ended_s, default=None)

    def close(self) -> None:
        self._reader.close()
        self._writer.close()
