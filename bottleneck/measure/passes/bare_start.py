"""The start of a single process, as of a worker: it imports nothing that a worker would not import anyway."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

_PATIENCE_S = 1.0


def _answer(send: Any, *_: Any) -> None:
    send.send_bytes(b"1")


def start_s(context: Any, clock: Callable[[], float], limit_s: float, *sent: Any) -> float | None:
    """Return how long a process takes until its own code runs; None if it cannot be started in time.

    Args:
        context: Of multiprocessing.
        clock: Seconds from any beginning.
        limit_s: How long it is waited for.
        sent: What it gets, as a worker its dataset.
    """
    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(send, *sent), daemon=True)
    began_s = clock()
    try:
        process.start()
        came = receive.poll(limit_s) and receive.recv_bytes()
        return clock() - began_s if came else None
    except Exception:  # noqa: BLE001 - the job has started its workers: this is a measurement more, and no more
        return None
    finally:
        receive.close()
        send.close()
        with suppress(Exception):  # it was not started
            process.join(_PATIENCE_S)
            if process.is_alive():
                process.kill()
                process.join(_PATIENCE_S)
            process.close()
