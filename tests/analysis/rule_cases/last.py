"""Jobs of which nothing more specific is known."""

from dataclasses import replace

from tests.analysis.rule_case import WORKERS, RuleCase, held_by, with_stage
from tests.analysis.simulated import DEVICE_BOUND

_FLOATS = {"path": "[0]", "shape": [32, 4, 64, 64], "dtype": "float32", "bytes": 4_000_000}


def _sends(nbytes, **changes):
    """A job that its hand-off holds, and whose samples take too long for one process."""
    payload = {"bytes": nbytes, "savings": [], "tensors": [{**_FLOATS, "bytes": nbytes}], **changes.pop("payload", {})}
    return with_stage(
        held_by("handoff", evidence={"payload": payload, **changes}), "load", "load", wall_s_per_batch=0.009
    )


_SAVING = {"id": "few-levels", "path": "[0]", "what": "float32", "how": "send uint8", "bytes_saved": 3_000_000}
_EPOCHS = replace(
    DEVICE_BOUND,
    pipeline={**WORKERS, "persistent_workers": True},
    evidence={"epoch_gap": {"seconds": 1.0, "low_s": 0.95, "high_s": 1.05, "started_anew": False, "batches": 100.0}},
)
"""Each epoch begins with a second in which nothing is ready."""
CASES = (
    RuleCase("fewer-handoffs", deserves=_sends(4_000), healthy=_sends(4_000_000), stage="handoff"),
    RuleCase(  # cases with a specific remedy
        "fewer-handoffs", deserves=_sends(4_000), healthy=_sends(4_000, collections={"share": 0.4}), stage="handoff"
    ),
    RuleCase("fewer-bytes", deserves=_sends(4_000_000), healthy=_sends(4_000), stage="handoff"),
    RuleCase(
        "fewer-bytes",
        deserves=_sends(4_000_000),
        healthy=_sends(4_000_000, payload={"savings": [_SAVING]}),
        stage="handoff",
    ),
    RuleCase(
        "longer-epochs",
        deserves=_EPOCHS,
        healthy=replace(_EPOCHS, evidence={"epoch_gap": {**_EPOCHS.evidence["epoch_gap"], "batches": 30_000.0}}),
    ),
    RuleCase(  # a copy that is no matter of bytes
        "look-for-lines",
        deserves=held_by("copy", evidence={"payload": {"bytes": 4_000}}),
        healthy=held_by("copy", evidence={"payload": {"bytes": 4_000_000}}),
        stage="copy",
    ),
)
