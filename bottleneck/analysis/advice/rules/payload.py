"""What of a batch could travel smaller, where its way from the workers to the device costs the job."""

from __future__ import annotations

from collections.abc import Iterator

from bottleneck.analysis.advice.rule import Case, Suggestion, rule
from bottleneck.results.format import duration, percent, size
from bottleneck.results.names import BEYOND_THE_WORKER

_WORTH_SHARE = 0.1
"""Share of the payload that has to be saved."""
_WORTH_TIME = 0.01
"""Share of a step that it has to take."""
_SLOWEST_BYTES_PER_S = 0.25 * 2**30
"""No byte of a tensor travels slower, into fresh shared memory or to a device: what takes longer is not its size."""


@rule("smaller-payload")
def _smaller_payload(case: Case) -> Iterator[Suggestion]:
    """Advise the largest saving of the payload for a stage that holds the job and moves it."""
    total, saving = case.evidence.payload.bytes, next(iter(case.evidence.payload.savings), None)
    if saving is None or saving.bytes_saved is None or not total or total <= 0:
        return
    share = saving.bytes_saved / total
    moving = [stage for name in BEYOND_THE_WORKER if (stage := case.holding(name)) is not None]
    stage = next((stage for stage in moving if stage.exposed_s_per_batch is not None), None)
    if stage is None or stage.exposed_s_per_batch is None or share < _WORTH_SHARE:
        return
    exposed_s = stage.exposed_s_per_batch.estimate
    # Taken to go with the bytes; the rest of the step stays what it is.
    saved_s = min(share * max(exposed_s, 0.0), saving.bytes_saved / _SLOWEST_BYTES_PER_S)
    if saved_s < _WORTH_TIME * case.step_s:
        return
    where = f"batch{saving.path or ''}"
    yield Suggestion(
        stage=stage.name,
        title=f"Let {where} travel smaller",
        why=f"{where} is {saving.what or ''}. Of the {size(total)} of a batch, {percent(share)} "
        f"need not travel; {stage.name} adds {duration(exposed_s)} to each {duration(case.step_s)} step. "
        f"The estimate takes {stage.name} to cost time by the byte.",
        how=saving.how or "send a smaller type",
        evidence={
            "payload_bytes": total, "bytes_saved": saving.bytes_saved, "exposed_s_per_batch": exposed_s,
            "step_s": case.step_s,
        },
        gain=case.at_most_headroom(case.step_s / max(case.step_s - saved_s, case.device_s)),
    )  # fmt: skip


RULES = (_smaller_payload,)
