"""The pipe for facts from the workers to the main process, on batches and memory; no worker ever waits for it."""

from __future__ import annotations

import marshal
import os
import struct
from collections import OrderedDict, deque
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe

from bottleneck.monitor.making import Made, plain_index
from bottleneck.monitor.memory import MemoryLook

try:
    import fcntl
except ImportError:
    fcntl = None  # type: ignore[assignment]  # Windows has none

_HEADER = struct.Struct("<IIq")
MAX_MESSAGE = 4096
"""Maximum bytes of an atomic write (PIPE_BUF), even with several writers."""
_ROOM = 1 << 20
"""Capacity of the pipe in bytes, if the system permits it."""
_KEPT = 2048
"""Maximum batches of all workers that are kept: more than prefetch queues ever hold."""
_CHUNK = 1 << 16
_UNKNOWN, _MEMORY = -1, -2
"""In place of the number of a batch: it is not known; a look at the memory of the process."""


class Sender:
    """Sender of facts on batches; parts of them, or all, are dropped before a worker waits.

    Args:
        connection: The end to write to; pickled only on its way to a worker.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __call__(self, made: Made, number: int | None) -> None:
        with suppress(OSError, ValueError):  # full, or no longer read
            try:
                content = marshal.dumps(tuple(made))
            except ValueError:  # such as numpy indices
                content = marshal.dumps(tuple(made._replace(indices=[plain_index(one) for one in made.indices])))
            if len(content) > MAX_MESSAGE - _HEADER.size:
                content = marshal.dumps(tuple(made._replace(indices=None, slowest=None)))
            self._send(content, made.pid, _UNKNOWN if number is None else number)

    def send_memory(self, look: MemoryLook) -> None:
        """Send a look at the memory of this process."""
        with suppress(OSError, ValueError):
            self._send(marshal.dumps(tuple(look)), look.pid, _MEMORY)

    def _send(self, content: bytes, pid: int, number: int) -> None:
        if _HEADER.size + len(content) <= MAX_MESSAGE:
            os.write(self._connection.fileno(), _HEADER.pack(len(content), pid, number) + content)


class Channel:
    """The pipe, and its latest messages."""

    def __init__(self) -> None:
        self._reader, self._writer = Pipe(duplex=False)
        for end in (self._reader, self._writer):
            os.set_blocking(end.fileno(), False)
        with suppress(OSError, AttributeError):  # Linux has it, with a limit
            fcntl.fcntl(self._writer.fileno(), fcntl.F_SETPIPE_SZ, _ROOM)
        self.sender = Sender(self._writer)
        self._rest = b""
        self._made: OrderedDict[tuple[int, int], bytes] = OrderedDict()
        self._looks: deque[MemoryLook] = deque(maxlen=_KEPT)

    def drain(self) -> None:
        """Read all messages that have arrived."""
        while chunk := self._read():
            content, at = self._rest + chunk, 0
            while at + _HEADER.size <= len(content):
                length, pid, number = _HEADER.unpack_from(content, at)
                end = at + _HEADER.size + length
                if end > len(content):
                    break
                body, at = content[at + _HEADER.size : end], end
                if number == _MEMORY:
                    self._looks.append(MemoryLook(*marshal.loads(body)))
                    continue
                self._made.pop((pid, number), None)
                self._made[pid, number] = body
            self._rest = content[at:]
            while len(self._made) > _KEPT:
                self._made.popitem(last=False)

    def _read(self) -> bytes:
        try:
            return os.read(self._reader.fileno(), _CHUNK)
        except OSError:  # it is empty, or was closed
            return b""

    def find(self, pids: list[int], number: int | None, until_s: float) -> Made | None:
        """Return the facts on a batch; None if unknown.

        Args:
            pids: Worker processes of its loader.
            number: Number of the batch in its pass; None: the batch that was ready last.
            until_s: Time at which the loop received it [s].
        """
        if number is not None:
            found = [self._made[pid, number] for pid in pids if (pid, number) in self._made]
        else:
            found = [content for (pid, _), content in self._made.items() if pid in pids]
        made = [one for one in (Made(*marshal.loads(content)) for content in found) if one.ended_s <= until_s]
        return max(made, key=lambda one: one.ended_s, default=None)

    def looks(self) -> Iterator[MemoryLook]:
        """Yield and remove the looks at the memory of workers that have arrived."""
        while self._looks:
            yield self._looks.popleft()

    def close(self) -> None:
        self._reader.close()
        self._writer.close()
