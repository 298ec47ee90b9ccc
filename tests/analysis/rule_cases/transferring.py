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


def handing_over(**payload):
    """A job that its hand-off holds, and what is cheap to make."""
    found = held_by("handoff", evidence={"payload": {"bytes": 110_000, "tensor_count": 3, **payload}})
    return replace(found, drained={**found.drained, "raw": found.drained["after_collate"] + 0.0008})


def boxes(samples):
    """A batch of pictures, with four small tensors for each."""
    paths = [f"[1][*]['{name}']" for name in ("boxes", "labels", "area", "image_id")]
    return {
        "tensor_count": 1 + 4 * samples, "packed_tensor_count": 6,
        "packable": [{"path": path, "tensors": samples, "bytes": 40 * samples} for path in paths],
    }  # fmt: skip


def objects(pickle_s=0.008, unpickle_s=0.006, path="['G']", **changes):
    """A batch with graphs beside its tensors."""
    graphs = {
        "path": path, "type": "networkx.Graph", "objects": 16, "python_objects": 20_000, "pickled_bytes": 2e5,
        "pickle_s": pickle_s, "unpickle_s": unpickle_s, "unread": True, **changes,
    }  # fmt: skip
    return {"pickled": [graphs]}


_NAMES = {"type": "str", "python_objects": 16, "pickled_bytes": 300}
MANY_TENSORS = handing_over(**boxes(28))
OBJECTS = handing_over(**objects())


def snapshots(interval=1, pickle_s=0.012, **evidence):
    """A job whose loader sends the state of its dataset with each batch."""
    seen = {"interval": interval, "state_s": 0.016, "pickle_s": pickle_s, "unpickle_s": 0.002, "pickled_bytes": 2e5}
    return {"snapshots": seen, "payload": {"bytes": 110_000, "tensor_count": 3}, **evidence}


SNAPSHOTS = replace(handing_over(), evidence=snapshots())

CASES = (
    RuleCase(
        "frequent-snapshots", deserves=SNAPSHOTS, healthy=replace(SNAPSHOTS, evidence=snapshots(1000)), stage="handoff"
    ),
    RuleCase("frequent-snapshots", deserves=SNAPSHOTS, healthy=handing_over(), stage="handoff"),
    RuleCase("frequent-snapshots", deserves=SNAPSHOTS, healthy=held_by("load", evidence=snapshots()), stage="handoff"),
    RuleCase("many-tensors", deserves=MANY_TENSORS, healthy=handing_over(), stage="handoff"),
    RuleCase(  # packing would save seven
        "many-tensors", deserves=MANY_TENSORS, healthy=handing_over(**boxes(3)), stage="handoff"
    ),
    RuleCase(  # it is the bytes that take the time
        "many-tensors", deserves=MANY_TENSORS, healthy=handing_over(**boxes(28), bytes=4e6), stage="handoff"
    ),
    RuleCase(
        "many-tensors", deserves=MANY_TENSORS, healthy=handing_over(**boxes(28), **objects(0.0, 0.014)), stage="handoff"
    ),
    RuleCase(
        "many-tensors",
        deserves=MANY_TENSORS,
        healthy=held_by("load", evidence={"payload": MANY_TENSORS.evidence["payload"]}),
        stage="handoff",
    ),
    RuleCase(
        "pickled-objects", deserves=OBJECTS, healthy=handing_over(**objects(1e-5, 1e-5, **_NAMES)), stage="handoff"
    ),
    RuleCase("pickled-objects", deserves=OBJECTS, healthy=handing_over(pickled=[]), stage="handoff"),
    RuleCase(
        "pickled-objects",
        deserves=OBJECTS,
        healthy=held_by("load", evidence={"payload": OBJECTS.evidence["payload"]}),
        stage="handoff",
    ),
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
