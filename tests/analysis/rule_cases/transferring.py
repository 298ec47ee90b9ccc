"""Collation, hand-over and copy."""

from dataclasses import replace

from tests.analysis.rule_case import RuleCase, held_by
from tests.analysis.simulated import DEVICE_BOUND

_PADDED = {
    "bytes": 1_000_000,
    "tensor_count": 2,
    "objects": 0,
    "tensors": [{"path": "['ids']", "shape": [32, 512], "dtype": "int64", "bytes": 131_072}],
    "savings": [
        {"id": "padding", "path": "['ids']", "what": "60% of it is padding", "how": "sort", "bytes_saved": 80_000}
    ],
}
_LITTLE_PADDING = {**_PADDED, "savings": [{**_PADDED["savings"][0], "bytes_saved": 20_000}]}
_COPY = held_by("copy", environment={"device": "cuda:0"}, pipeline={"to_device": None})
_OWN_COPY = replace(_COPY, pipeline={**_COPY.pipeline, "to_device": "move"})

CASES = (
    RuleCase(
        "padding",
        deserves=held_by("collate", evidence={"payload": _PADDED}),
        healthy=held_by("collate", evidence={"payload": _LITTLE_PADDING}),
        stage="collate",
    ),
    RuleCase(
        "padding",
        deserves=replace(DEVICE_BOUND, evidence={"payload": _PADDED}),
        healthy=held_by("load", evidence={"payload": _PADDED}),
        stage="compute",
    ),
    RuleCase("prefetch-copy", deserves=_COPY, healthy=replace(_COPY, environment={"device": "mps"}), stage="copy"),
    RuleCase(
        "non-blocking",
        deserves=replace(_OWN_COPY, evidence={"loader": {"mentions_non_blocking": False}}),
        healthy=replace(_OWN_COPY, evidence={"loader": {"mentions_non_blocking": True}}),
        stage="copy",
    ),
    RuleCase(  # without pinning there is nothing to be asynchronous
        "non-blocking",
        deserves=replace(_OWN_COPY, evidence={"loader": {"mentions_non_blocking": False}}),
        healthy=replace(
            _OWN_COPY,
            evidence={"loader": {"mentions_non_blocking": False}},
            pipeline={**_OWN_COPY.pipeline, "pin_memory": False},
        ),
        stage="copy",
    ),
)
