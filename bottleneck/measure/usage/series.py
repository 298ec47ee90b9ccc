"""Turns counters and samples into series over time: a row for each block, in the order in which they were measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from bottleneck.measure.describe import named_arms
from bottleneck.measure.ladder import Arm, Ladder
from bottleneck.measure.usage.samples import BlockReadings, UsageSamples
from bottleneck.measure.usage.summary import BlockUsage
from bottleneck.results.evidence import BlocksOverTime, MemoryOverTime, UsageSeries

MOST_ROWS = 240
"""With more blocks than that, as many neighbours as needed share a row."""


def utilisation_series(found: UsageSamples, ladder: Ladder, most_rows: int = MOST_ROWS) -> UsageSeries:
    """Return `blocks` and `memory` over time, in seconds from the beginning of the first block."""
    if not found.blocks:
        return UsageSeries(blocks_per_row=1)
    origin_s = found.blocks[0].begin.time_s
    names: dict[Arm, tuple[str, str]] = {}
    for name, mode, arm in named_arms(ladder):
        names.setdefault(arm, (name, mode))
    size = math.ceil(len(found.blocks) / most_rows)
    groups = [found.blocks[first : first + size] for first in range(0, len(found.blocks), size)]
    # The last reading always belongs to it: it shows where the memory ended.
    readings = found.memory[:: -math.ceil(len(found.memory) / most_rows)][::-1] if found.memory else []
    return UsageSeries(
        blocks_per_row=size,
        blocks=tuple(_row(found, group, names, origin_s) for group in groups),
        memory=tuple(
            MemoryOverTime(
                time_s=_rounded(reading.time_s - origin_s),
                private_bytes=reading.private_bytes,
                shared_bytes=reading.shared_bytes,
            )
            for reading in readings
        ),
    )


def _row(
    found: UsageSamples, blocks: Sequence[BlockReadings], names: Mapping[Arm, tuple[str, str]], origin_s: float
) -> BlocksOverTime:
    named = {names.get(block.arm) for block in blocks}
    name, mode = (named.pop() if len(named) == 1 else None) or (None, None)
    usage = BlockUsage(found, blocks).row()
    main, workers = usage.cores_main, usage.cores_workers
    return BlocksOverTime(
        begin_s=_rounded(blocks[0].begin.time_s - origin_s),
        end_s=_rounded(blocks[-1].end.time_s - origin_s),
        name=name,
        mode=mode,
        cores_busy=_rounded(usage.cores_busy),
        cores_job=None if main is None or workers is None else _rounded(main + workers),
        disk_read_bytes_per_s=_rounded(usage.disk_read_bytes_per_s),
        gpu_busy_share=_rounded(usage.gpu.busy_share),
    )


def _rounded(number: float | None) -> float | None:
    """Milliseconds and thousandths are more than a chart shows, and half the digits."""
    return None if number is None else round(number, 3)
