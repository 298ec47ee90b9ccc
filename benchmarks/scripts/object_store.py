"""An object store over HTTP with a limit: `object_store.py latency|bandwidth|requests|refusing|none BYTES`.

Prints its port, and serves until its standard input ends. Nothing here knows of `bottleneck`.
"""

from __future__ import annotations

import asyncio
import sys

LATENCY_S = 0.05
BYTES_PER_S = 20e6
REQUESTS_PER_S = 10.0
_PIECE_BYTES = 1 << 16
_LINE_BYTES = 1 << 14


class Queue:
    """Lets pass what comes, one piece after the other, each for as long as it takes."""

    def __init__(self) -> None:
        self.free_s = 0.0

    async def pass_through(self, seconds: float) -> None:
        """Wait until this piece has had its turn."""
        now_s = asyncio.get_running_loop().time()
        self.free_s = max(self.free_s, now_s) + seconds
        await asyncio.sleep(self.free_s - now_s)


class Store:
    """Answers every request with an object of one size."""

    def __init__(self, limit: str, nbytes: int) -> None:
        self.limit, self.body = limit, (b"x" * (_LINE_BYTES - 1) + b"\n") * (nbytes // _LINE_BYTES)
        self.line = Queue()
        self.window_s, self.answered = 0.0, 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of a connection, until it ends."""
        try:
            while request := await reader.readuntil(b"\r\n\r\n"):
                await self._answer(request, writer)
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, request: bytes, writer: asyncio.StreamWriter) -> None:
        if self.limit == "latency":
            await asyncio.sleep(LATENCY_S)
        elif self.limit == "requests":
            await self.line.pass_through(1 / REQUESTS_PER_S)
        elif self.limit == "refusing" and self._is_too_much():
            await asyncio.sleep(LATENCY_S / 10)
            writer.write(b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\n\r\n")
            return
        body = b"" if request.startswith(b"HEAD") else self.body
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(self.body))
        for at in range(0, len(body), _PIECE_BYTES):
            piece = body[at : at + _PIECE_BYTES]
            if self.limit == "bandwidth":
                await self.line.pass_through(len(piece) / BYTES_PER_S)
            writer.write(piece)
            await writer.drain()

    def _is_too_much(self) -> bool:
        now_s = asyncio.get_running_loop().time()
        if now_s >= self.window_s + 1.0:
            self.window_s, self.answered = now_s, 0
        self.answered += 1
        return self.answered > REQUESTS_PER_S


async def main(limit: str, nbytes: int) -> None:
    """Serve until the standard input ends."""
    store = Store(limit, nbytes)
    server = await asyncio.start_server(store.serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
