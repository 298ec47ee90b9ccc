"""The host of a GPU: its speed right now, by photographs on one core, and the time that is stolen from it."""

from __future__ import annotations

import io
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

LOOK_S = 0.1
AGREE = 0.05
"""Two calibrations agree within this part; otherwise their figures are not compared."""
_PHOTOGRAPHS, _SIDE, _SMALLER = 24, 400, 224
_BLOCKS = 4
"""Blocks of memory that Pillow keeps between photographs: fresh memory costs more in some processes than in others."""


def make_photographs(number: int, side: int) -> list[bytes]:
    """Smooth noise as JPEG files, which are compressed about as far as photographs are; always the same."""
    random = np.random.default_rng(0)
    found = []
    for _ in range(number):
        coarse = Image.fromarray(random.integers(0, 256, (side // 8, side // 8, 3), dtype=np.uint8))
        file = io.BytesIO()
        coarse.resize((side, side), Image.Resampling.BICUBIC).save(file, "JPEG", quality=90)
        found.append(file.getvalue())
    return found


class Host:
    """Calibrates the host at each figure, so that a host that changes can be told from a tool that is wrong.

    Args:
        clock: A steady clock.
        stat: File of the system's ticks.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter, stat: Path = Path("/proc/stat")) -> None:
        self._files, self._clock, self._stat = make_photographs(_PHOTOGRAPHS, _SIDE), clock, stat
        self._take(self._files[0])  # the first one loads the libraries

    def ms_a_photograph(self) -> float:
        """Milliseconds of one core for a photograph right now: the median over 0.1 s."""
        until_s = self._clock() + LOOK_S
        taken_s: list[float] = []
        Image.core.set_blocks_max(_BLOCKS)  # type: ignore[attr-defined]  # Pillow documents it
        while not taken_s or self._clock() < until_s:
            for file in self._files:
                began_s = self._clock()
                self._take(file)
                taken_s.append(self._clock() - began_s)
        Image.core.set_blocks_max(0)  # type: ignore[attr-defined]  # Pillow documents it
        return 1e3 * statistics.median(taken_s)

    @contextmanager
    def calibrated(self) -> Iterator[dict[str, float]]:
        """Calibrate before a figure, and count the time stolen meanwhile; the facts are complete at the end."""
        facts = {"host_ms": self.ms_a_photograph()}
        stolen, all_ticks = self._ticks()
        yield facts
        stolen_then, all_then = self._ticks()
        facts["stolen"] = (stolen_then - stolen) / max(1, all_then - all_ticks)

    def _ticks(self) -> tuple[int, int]:
        """The ticks that were stolen from all cores, and all ticks; a system that counts none has none stolen."""
        try:
            fields = [int(field) for field in self._stat.read_text(encoding="ascii").splitlines()[0].split()[1:9]]
        except (OSError, ValueError, IndexError):
            return 0, 0
        return fields[-1], sum(fields)

    @staticmethod
    def _take(file: bytes) -> None:
        Image.open(io.BytesIO(file)).convert("RGB").resize((_SMALLER, _SMALLER), Image.Resampling.BILINEAR)


def agree(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Tell if the host was equally fast at two figures; one that was not calibrated agrees with none."""
    if "host_ms" not in one or "host_ms" not in other:
        return False
    slower, faster = sorted((one["host_ms"], other["host_ms"]), reverse=True)
    stolen = abs(one.get("stolen", 0.0) - other.get("stolen", 0.0))
    return bool(slower <= (1 + AGREE) * faster and stolen <= AGREE)
