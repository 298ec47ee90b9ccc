"""Which advice `bottleneck tune` can prove, and the command that does.

The names are those of its changes, which need torch and are not imported here; a test compares them.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator

from bottleneck.results.records import Advice, Result

PROVING: dict[str, tuple[str, ...]] = {
    "compile": ("compile", "cuda_graphs"),
    "fetch-in-batches": ("whole_batches",),
    "larger-batch": ("batch_size",),
    "mixed-precision": ("autocast", "fp16"),
    "more-workers": ("num_workers",),
    "no-workers-better": ("num_workers",),
    "non-blocking": ("pin_memory",),
    "persistent-workers": ("persistent_workers", "start_method"),
    "pin-memory": ("pin_memory",),
    "smaller-copy": ("one_hot", "smaller_floats", "uint8_images"),
    "smaller-handoff": ("one_hot", "smaller_floats", "uint8_images"),
    "smaller-payload": ("one_hot", "smaller_floats", "uint8_images"),
    "spawn-pickling": ("start_method",),
    "thread-oversubscription": ("worker_threads",),
    "too-many-workers": ("num_workers",),
    "uint8-until-device": ("uint8_images",),
    "uneven-samples": ("num_workers", "in_order"),
    "unused-columns": ("leave_out",),
    "use-workers": ("num_workers",),
}
"""The changes that try what is advised, by the id of the advice."""


def proof_of(result: Result, advice: Iterable[Advice]) -> str:
    """The command that tries what is advised; empty where there is none.

    A script has no target, and a job of several ranks is not tuned.
    """
    target = result.pipeline.get("target")
    tried = dict.fromkeys(name for item in advice for name in changes_for(result, item))
    is_script = result.pipeline.get("source") == "script"
    if not tried or not isinstance(target, str) or is_script or result.ranks:
        return ""
    return " ".join(["bottleneck tune", shlex.quote(target), *(f"--try {name}" for name in tried)])


def changes_for(result: Result, advice: Advice) -> Iterator[str]:
    """The changes that try what is advised, as far as they are known to apply."""
    for name in PROVING.get(advice.id, ()):
        # The workers of a stream divide it in a way of its own.
        if not (name == "num_workers" and result.evidence.loader.iterable):
            yield name
