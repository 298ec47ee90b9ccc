"""Requests over the network while a worker makes batches, as its sockets see them.

A request begins with a send, and its answer is what a socket receives until the next one: that holds for HTTP, object
stores and databases alike, for clients that block and for those of asyncio. WebDataset reads a URL by curl and the
like, in a process for each shard: there a request begins with the process, and its answer comes through the pipe.
Other clients in C or Rust do not use Python's sockets, and are not seen. Over TLS, asyncio's sockets carry ciphertext:
sizes and times are right, the status is not seen.
"""

from __future__ import annotations

import re
import socket
import ssl
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import wraps
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from bottleneck.job.replaced import replace_function

_REFUSED = re.compile(rb"HTTP/1\.\d (429|503)\b")
"""Status line of a server that wants fewer requests."""
_STATUS_BYTES = 12


@dataclass
class NetworkSpent:
    """Requests over the network of some batches.

    Attributes:
        requests: Requests whose answer began to arrive.
        connections: Those of them that came first on a new connection.
        refused: Those of them that were answered with status 429 or 503.
        nbytes: Bytes received.
        connecting_s: Time from the beginning of a connection to its first request.
        first_byte_s: Time from a request to the first byte of its answer.
        transfer_s: Time from there to the last byte.
        in_flight_s: Time for which requests were open, all added up.
        open_s: Time for which at least one was open.
        computing_s: CPU time of the process meanwhile.
        stages: In-flight time by the stage that was at work.
    """

    requests: int = 0
    connections: int = 0
    refused: int = 0
    nbytes: int = 0
    connecting_s: float = 0.0
    first_byte_s: float = 0.0
    transfer_s: float = 0.0
    in_flight_s: float = 0.0
    open_s: float = 0.0
    computing_s: float = 0.0
    stages: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    def add(self, other: NetworkSpent, named: Callable[[str], str] = str) -> None:
        """Add another one; its stages get the names that a function gives them."""
        for name, value in vars(other).items():
            if name != "stages":
                setattr(self, name, getattr(self, name) + value)
        for stage, seconds in other.stages.items():
            self.stages[named(stage)] += seconds


Moment = tuple[float, float]
"""Seconds of the wall's clock, and CPU seconds of the process."""


@dataclass
class _Exchange:
    """The latest request of a socket, or of a pipe."""

    stage: str
    began: Moment | None = None
    """Begin of the connection, if this is its first request, or of the request; None if counted already."""
    sent_s: float | None = None
    """None for an answer whose request was not seen, or was counted with an earlier batch."""
    connected: bool = False
    first_s: float | None = None
    last: Moment | None = None
    nbytes: int = 0
    refused: bool = False


class NetworkWatch:
    """Notes the requests of this process between `start` and `stop`, by wrapping the methods of sockets and of pipes.

    Args:
        now: Gives the present moment.
        stage: Gives the stage that is at work.
    """

    def __init__(self, now: Callable[[], Moment], stage: Callable[[], str]) -> None:
        self._now = now
        self._stage = stage
        self._lock = threading.Lock()
        self._latest: WeakKeyDictionary[Any, _Exchange] = WeakKeyDictionary()
        self._noted: list[_Exchange] = []
        """Exchanges that are not counted yet; their sockets may be gone."""
        self._accepted: WeakSet[socket.socket] = WeakSet()
        """Connections of a server in this process, which answers."""
        self._replaced = ExitStack()
        self._is_on = False
        self._began: Moment = (0.0, 0.0)
        self._spent = NetworkSpent()
        self._open: list[tuple[Moment, Moment]] = []

    def start(self) -> None:
        """Begin to note, with nothing."""
        self._began, self._spent, self._open, self._is_on = self._now(), NetworkSpent(), [], True
        pipe = getattr(sys.modules.get("webdataset.gopen"), "Pipe", None)
        of_pipes = ((pipe, ("__init__",), self._opening), (pipe, ("read",), self._receiving)) if pipe else ()
        for owner, names, wrapper in (
            *of_pipes,
            (socket.socket, ("accept",), self._accepting),
            (socket.socket, ("connect", "connect_ex"), self._connecting),
            (ssl.SSLSocket, ("do_handshake",), self._connecting),
            (socket.socket, ("send", "sendall", "sendmsg"), self._sending),
            (socket.socket, ("recv", "recv_into", "recvmsg"), self._receiving),
            (ssl.SSLSocket, ("send", "write"), self._sending),
            (ssl.SSLSocket, ("read",), self._receiving),
        ):
            for name in names:
                if hasattr(owner, name):
                    self._replaced.callback(replace_function(owner, name, wrapper))

    def stop(self) -> NetworkSpent:
        """Restore the sockets, and return what was noted since `start`."""
        self._replaced.close()
        if self._is_on:
            self._is_on = False
            with self._lock:
                self._count_noted(self._now())
        return self._spent

    def _count_noted(self, now: Moment) -> None:
        """Count all exchanges. What goes on arriving belongs to the next batch, without its request."""
        noted, self._noted = self._noted, []
        for exchange in noted:
            if exchange.last is not None:
                self._count(exchange, exchange.last)
                exchange.began = exchange.sent_s = exchange.first_s = exchange.last = None
                exchange.nbytes = 0
            elif exchange.began is not None and exchange.began >= self._began:
                self._count_open(exchange, now)
                self._noted.append(exchange)
        self._spent.open_s, self._spent.computing_s = _union(self._open)

    # --- what sockets do -----------------------------------------------------------------------------------

    def _requests(self, connection: Any) -> bool:
        """Return True for TCP that this process opened, and for pipes of commands with a URL.

        Sockets within the machine belong to Python's own processes.
        """
        if not isinstance(connection, socket.socket):
            return "://" in str(getattr(connection, "args", ""))
        is_tcp = connection.type == socket.SOCK_STREAM and connection.family in (socket.AF_INET, socket.AF_INET6)
        return is_tcp and connection not in self._accepted

    def _accepting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def accept(listener: socket.socket) -> Any:
            accepted = original(listener)
            self._accepted.add(accepted[0])
            return accepted

        return accept

    def _connecting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def connect(connection: socket.socket, *args: Any, **kwargs: Any) -> Any:
            if self._requests(connection):
                with self._lock:
                    if connection not in self._latest:
                        self._begin(connection, connected=True).began = self._now()
            return original(connection, *args, **kwargs)

        return connect

    def _opening(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def open_pipe(pipe: Any, *args: Any, **kwargs: Any) -> None:
            original(pipe, *args, **kwargs)
            if self._requests(pipe):
                self._note_sent(pipe)

        return open_pipe

    def _sending(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def send(connection: Any, *args: Any, **kwargs: Any) -> Any:
            if self._requests(connection):
                self._note_sent(connection)
            return original(connection, *args, **kwargs)

        return send

    def _receiving(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def receive(connection: Any, *args: Any, **kwargs: Any) -> Any:
            if not self._requests(connection):
                return original(connection, *args, **kwargs)
            began = self._now()
            received = original(connection, *args, **kwargs)
            self._note_received(connection, began, received, args)
            return received

        return receive

    def _begin(self, connection: Any, *, connected: bool = False) -> _Exchange:
        exchange = self._latest[connection] = _Exchange(self._stage(), connected=connected)
        self._noted.append(exchange)
        return exchange

    def _note_sent(self, connection: Any) -> None:
        now = self._now()
        with self._lock:
            exchange = self._latest.get(connection)
            if exchange is None or self._is_over(exchange):
                exchange = self._begin(connection)
            exchange.began = exchange.began or now
            if exchange.sent_s is None:  # else it goes on: a header and a body
                exchange.sent_s = now[0]

    def _is_over(self, exchange: _Exchange) -> bool:
        """Return True if an answer has come, or may have come between two batches, while nothing was noted."""
        if exchange.last is not None or exchange.began is None:
            return True
        return exchange.sent_s is not None and exchange.sent_s < self._began[0]

    def _note_received(
        self, connection: Any, began: Moment, received: bytes | int | tuple[Any, ...], args: tuple[Any, ...]
    ) -> None:
        data: bytes | int = received[0] if isinstance(received, tuple) else received
        nbytes = data if isinstance(data, int) else len(data)
        if not nbytes:  # the other side has closed
            return
        now = self._now()
        with self._lock:
            exchange = self._latest.get(connection)
            if exchange is None or exchange.began is None:
                exchange = self._begin(connection)
                exchange.began = began
            if exchange.first_s is None:
                exchange.first_s = now[0] if exchange.sent_s is not None else began[0]
                exchange.refused = exchange.sent_s is not None and _is_refusal(data, args)
            exchange.last = now
            exchange.nbytes += nbytes

    # --- what that comes to --------------------------------------------------------------------------------

    def _count(self, exchange: _Exchange, last: Moment) -> None:
        began, first_s, spent = exchange.began or last, exchange.first_s or last[0], self._spent
        spent.nbytes += exchange.nbytes
        spent.transfer_s += last[0] - first_s
        if exchange.sent_s is not None:
            spent.requests += 1
            spent.refused += exchange.refused
            spent.connections += exchange.connected
            spent.connecting_s += exchange.sent_s - began[0] if exchange.connected else 0.0
            spent.first_byte_s += first_s - exchange.sent_s
        self._count_open(exchange, last)

    def _count_open(self, exchange: _Exchange, until: Moment) -> None:
        began = max(exchange.began or until, self._began)
        if until > began:
            self._open.append((began, until))
            self._spent.in_flight_s += until[0] - began[0]
            self._spent.stages[exchange.stage] += until[0] - began[0]


def _is_refusal(received: bytes | int, args: tuple[Any, ...]) -> bool:
    """Return True for the beginning of an answer by which a server asks for fewer requests."""
    if isinstance(received, (bytes, bytearray)):
        return _REFUSED.match(received) is not None
    buffer = next((arg for arg in args if isinstance(arg, (bytearray, memoryview))), b"")
    return _REFUSED.match(bytes(memoryview(buffer).cast("B")[:_STATUS_BYTES])) is not None


def _union(spans: Iterable[tuple[Moment, Moment]]) -> tuple[float, float]:
    """Return the seconds and the CPU seconds that spans cover together."""
    open_s = computing_s = 0.0
    until: Moment = (0.0, 0.0)
    for span in sorted(spans):
        began, ended = max(span[0], until), span[1]
        if ended > began:
            open_s += ended[0] - began[0]
            computing_s += ended[1] - began[1]
            until = ended
    return open_s, computing_s
