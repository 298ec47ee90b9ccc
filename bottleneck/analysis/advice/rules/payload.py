"""What of a batch could travel smaller, where its way from the workers to the device costs the job."""

from __future__ import annotations

from collections.abc import Iterator

from bottleneck.analysis.advice.rule import Case, Item, rule
from bottleneck.results.evidence import Saving
from bottleneck.results.format import duration, percent
from bottleneck.results.names import BEYOND_THE_WORKER
from bottleneck.results.records import Advice, Stage

_WORTH_SHARE = 0.1
"""Share of the payload that has to be saved."""
_MEBIBYTE = 2**20


@rule("smaller-payload")
def _smaller_payload(case: Case) -> Iterator[Item]:
    """Advise the largest saving of the payload for a stage that holds the job and moves it."""
    payload = case.evidence.payload
    saving = next(iter(payload.savings), Saving())
    total, saved = payload.bytes, saving.bytes_saved
    if case.verdict.state != "input_bound" or saved is None or not total or total <= 0:
        return
    share = saved / total
    if share < _WORTH_SHARE:
        return
    named = (case.verdict.bottleneck, *case.verdict.contributors)
    for name in BEYOND_THE_WORKER:
        stage = case.stage(name)
        if stage is not None and name in named and stage.exposed_s_per_batch is not None:
            yield _advise(case, stage, saving, share, total)
            return


def _advise(case: Case, stage: Stage, saving: Saving, share: float, total: float) -> Item:
    exposed_s = stage.exposed_s_per_batch.estimate if stage.exposed_s_per_batch else 0.0
    # Taken to go with the bytes; the rest of the step stays what it is.
    gain = case.at_most_headroom(case.step_s / max(case.step_s - share * max(exposed_s, 0.0), case.device_s))
    where = f"batch{saving.path or ''}"
    return Item(
        gain,
        Advice(
            id="smaller-payload",
            stage=stage.name,
            title=f"Let {where} travel smaller",
            why=f"{where} is {saving.what or ''}. Of the {total / _MEBIBYTE:.3g} MiB of a batch, {percent(share)} "
            f"need not travel; {stage.name} adds {duration(exposed_s)} to each {duration(case.step_s)} step. "
            f"The estimate takes {stage.name} to cost time by the byte.",
            how=saving.how or "send a smaller type",
            evidence={
                "payload_bytes": total, "bytes_saved": saving.bytes_saved, "exposed_s_per_batch": exposed_s,
                "step_s": case.step_s,
            },
        ),
    )  # fmt: skip


RULES = (_smaller_payload,)
