"""How a worker died: by which signal, or with which exit status; PyTorch often says only which process it was."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from multiprocessing.process import BaseProcess

from bottleneck.job.users_code import text_of

_UNKNOWN = "exited unexpectedly"
_PATIENCE_S = 1.0
"""Between the end of a process and its exit code there may be a moment."""


@dataclass(frozen=True)
class Death:
    """How a worker ended.

    Attributes:
        signal: The name of the signal that killed it, such as `SIGKILL`; None if none did, or it is not known.
        status: Its exit status, where it ended by itself and that is known.
    """

    signal: str | None = None
    status: int | None = None


def died_of_unknown(error: BaseException) -> bool:
    """Whether an exception says that workers ended, and not how."""
    text = text_of(error)
    return text.startswith("DataLoader worker") and text.endswith(_UNKNOWN)


def describe_deaths(dead: Iterable[BaseProcess]) -> str:
    """Say of workers that have ended how, in PyTorch's words.

    Args:
        dead: At least one; the first is the one that is described, as the others may have died of its death.
    """
    workers = list(dead)
    workers[0].join(_PATIENCE_S)
    code = workers[0].exitcode
    how = "" if code is None else f": {_name(-code)}" if code < 0 else f": status {code}"
    return f"DataLoader worker (pid(s) {', '.join(str(worker.pid) for worker in workers)}) {_UNKNOWN}{how}"


def find_death(text: str) -> Death | None:
    """Read how a worker ended from the text of PyTorch's exception, or of ours; None if it describes no such end."""
    if "DataLoader worker" not in text:
        return None
    by_signal = re.search(r"killed by signal: (.+?)\.(\s|$)", text)
    if by_signal is not None:
        return Death(signal=_DESCRIBED.get(by_signal[1], by_signal[1]))
    unexpected = re.search(rf"{_UNKNOWN}(?:(?:: status| with exit code) (\d+)|: (\S+))?", text)
    if unexpected is None:
        return None
    return Death(unexpected[2], int(unexpected[1]) if unexpected[1] else None)


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # such as the real-time signals
        return f"signal-{number}"


_DESCRIBED = {signal.strsignal(number): number.name for number in reversed(signal.Signals)}
