"""Signs of life of ranks, and what they say at once: whether a process of this host has ended."""

from __future__ import annotations

import os
from collections.abc import Mapping

import msgspec
import psutil

from bottleneck.measure.ranks.group import Failed, Group

_EVERY_S, _EVERY_S_PER_RANK = 1.0, 5e-3


class Sign(msgspec.Struct, frozen=True):
    """A sign of life."""

    number: int
    host: str
    pid: int
    steps: int
    """Batches so far."""
    at: str = ""
    """Where the user's code is, if it is there."""


def between_signs_s(ranks: int) -> float:
    """How long a rank waits between two signs: the more of them there are, the longer."""
    return max(_EVERY_S, _EVERY_S_PER_RANK * ranks)


def leave_sign(group: Group, number: int, at: str) -> None:
    """Leave a sign of this rank's life."""
    sign = Sign(number, group.host, os.getpid(), group.progress, at)
    group.say_alive(msgspec.json.encode(sign).decode())


def read_signs(group: Group) -> dict[int, Sign]:
    """The last signs of the ranks that this one looks after: the first one after all, the others after the first."""
    texts = group.signs(range(group.size) if group.leads else (0,))
    return {rank: msgspec.json.decode(text, type=Sign) for rank, text in texts.items()}


def find_ended(group: Group, signs: Mapping[int, Sign]) -> Failed | None:
    """The rank on this host whose process has ended."""
    for rank, sign in signs.items():
        if rank != group.rank and sign.host == group.host and not is_alive(sign.pid):
            return Failed(
                rank, sign.host, "Its process ended without a word.",
                "If the kernel's out-of-memory killer ended it (see dmesg, and the memory limit of the container), "
                "use fewer workers or a smaller batch.",
            )  # fmt: skip
    return None


def find_silent(group: Group, before: Mapping[int, Sign], now: Mapping[int, Sign], after_s: float) -> Failed | None:
    """The rank that has left no sign since before, which was so many seconds ago."""
    for rank, sign in now.items():
        if rank != group.rank and rank in before and before[rank].number == sign.number:
            return Failed(
                rank, sign.host, f"It gave no sign of life for {after_s:.0f} s.",
                "Its process was killed, its host is gone, or the network between them.",
            )  # fmt: skip
    return None


def is_alive(pid: int) -> bool:
    """Whether a process of this host goes on."""
    try:
        return psutil.Process(pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False
    except psutil.Error:
        return True
