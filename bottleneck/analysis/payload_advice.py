"""What of a batch could travel smaller, where its way from the workers to the device costs the job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bottleneck.analysis.case import Case, Item
from bottleneck.analysis.readings import COPY
from bottleneck.results.format import duration, percent
from bottleneck.results.records import Advice, Stage

_TRAVELS = (COPY, "handoff")
_WORTH_SHARE = 0.1
"""Share of the payload that has to be saved."""
_MEGABYTE = 1e6


def payload_advice(case: Case) -> Iterator[Item]:
    """Advise the largest saving of the payload for a stage that holds the job and moves it."""
    payload = case.evidence.get("payload")
    if case.verdict.state != "input_bound" or not isinstance(payload, Mapping):
        return
    saving = next(iter(payload.get("savings") or ()), None)
    total = payload.get("bytes")
    if not isinstance(saving, Mapping) or not isinstance(total, (int, float)) or total <= 0:
        return
    share = saving["bytes_saved"] / total
    if share < _WORTH_SHARE:
        return
    named = (case.verdict.bottleneck, *case.verdict.contributors)
    for name in _TRAVELS:
        stage = case.stage(name)
        if stage is not None and name in named and stage.exposed_s_per_batch is not None:
            yield _advise(case, stage, saving, share, total)
            return


def _advise(case: Case, stage: Stage, saving: Mapping[str, Any], share: float, total: float) -> Item:
    exposed_s = stage.exposed_s_per_batch.estimate if stage.exposed_s_per_batch else 0.0
    # Taken to go with the bytes; the rest of the step stays what it is.
    gain = case.at_most_headroom(case.step_s / max(case.step_s - share * max(exposed_s, 0.0), case.device_s))
    where = f"batch{saving['path']}"
    return Item(
        gain,
        Advice(
            id="smaller-payload",
            stage=stage.name,
            title=f"Let {where} travel smaller",
            why=f"{where} is {saving['what']}. Of the {total / _MEGABYTE:.3g} MB of a batch, {percent(share)} need "
            f"not travel; {stage.name} adds {duration(exposed_s)} to each {duration(case.step_s)} step. The gain is an "
            "estimate: that the stage takes time by the byte.",
            how=str(saving["how"]),
            evidence={
                "payload_bytes": total, "bytes_saved": saving["bytes_saved"], "exposed_s_per_batch": exposed_s,
                "step_s": case.step_s,
            },
        ),
    )  # fmt: skip
