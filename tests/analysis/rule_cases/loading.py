"""Making samples from files and memory."""

from dataclasses import replace

from tests.analysis.rule_case import RuleCase, held_by, transform, with_stage
from tests.analysis.simulated import Job

_PHOTOS = {
    "decoded_pixels_per_sample": 500 * 375.0,
    "used_pixels_per_sample": 224 * 224.0,
    "loaded_bytes_per_sample": 562_500.0,
    "fetches_batches": False,
}


def _load(facts, **settings):
    return held_by("load", evidence={"loader": facts}, **settings)


_DECODES = _load(_PHOTOS, pipeline={"dataset": "Photos", "dataset_length": 100_000})
_FETCHES = with_stage(
    held_by("load", evidence={"loader": _PHOTOS, "transforms": [transform("transform", "Blur", 0.3, stage="fetch")]}),
    "load",
    "fetch",
)
_FITS = {**_DECODES.pipeline, "dataset_length": 10_000}
_MEMORY = {"memory_available_bytes": 16e9}
_TINY = held_by("load", slow_s=0.0008, pipeline={"batch_size": 64, "dataset": "Rows"})
_TINY = replace(
    _TINY,
    coupled={**_TINY.coupled, "device": 0.0004, "host": 0.0005, "after_collate": 0.0006, "before_collate": 0.0007,
             "before_augment": 0.0008, "raw": 0.0016},
    drained={"after_collate": 0.0004, "before_collate": 0.0005, "before_augment": 0.0006, "raw": 0.0015},
    without=dict.fromkeys(_TINY.without, 0.0016) | {"load": 0.0008},
    evidence={"loader": {"fetches_batches": False, "iterable": False}},
)  # fmt: skip
_UNRESOLVED = Job(
    coupled={"device": 1e-6, "before_collate": 85e-6, "raw": 98e-6},
    drained={"before_collate": 84e-6, "raw": 97e-6},
    without={"collate": 98e-6, "load": 85e-6},
    workers=97e-6,
    alone={"collate": 97e-6, "load": 84e-6},
    pipeline={"batch_size": 64, "num_workers": 0, "dataset": "Rows"},
    evidence=_TINY.evidence,
)
"""A job of tiny steps: serving a stage from a cache takes as long as the stage."""


def _touches(held="load", line=None, others=(), **changes):
    """A job that reads a row group of a Parquet file for each row."""
    seen = {
        "source": "parquet", "stage": held, "unit": "bytes", "touched_per_sample": 4e6, "kept_per_sample": 16e3,
        "rows_per_sample": 256, "share": 0.9, "samples": 16, "opens": 16, "opened_files": 4, "opening_share": 0.05,
        **changes,
    }  # fmt: skip
    lines = [{"stage": held, "path": "a.py", "line": 3, "share": 0.9, "library": False, "calls": line}] if line else []
    return held_by(held, evidence={"amplification": [*others, seen], "lines": lines})


_ONE_BY_ONE = {"opened_files": 16}
_OPENS = {"kept_per_sample": 4e6, "opening_share": 0.6}
_READ = {"source": "read", "share": None, "opens": None}
_SHARD = {"source": "saved-tensors", "stage": "load", "share": 0.9, "touched_per_sample": 4e6, "kept_per_sample": 4e6}
_AGAIN = {"samples": 16, "stages": ["load"], "bytes_per_sample": 1e6, "seconds_per_sample": 0.004}


def _again(length=1000, **changes):
    """A job whose loading gives the same for an index each time."""
    return held_by(
        "load", evidence={"repeated": {**_AGAIN, **changes}}, pipeline={"dataset_length": length}, environment=_MEMORY
    )


def _few(length=12_800, held="load", **changes):
    """A job whose indices stand for few different pictures."""
    seen = {"stage": "load", "samples": 120, "different": 32, "seen_once": 2, "bytes_each": 518_400, **changes}
    return held_by(held, evidence={"distinct": seen}, pipeline={"dataset_length": length}, environment=_MEMORY)


_COLUMNS = held_by(
    "handoff", evidence={"payload": {"bytes": 1e6, "unread": ["['token_type_ids']"], "unread_bytes": 3e5}}
)

CASES = (
    RuleCase(
        "image-decoding",
        deserves=_DECODES,
        healthy=_load({**_PHOTOS, "decoded_pixels_per_sample": 256 * 256.0}),
        stage="load",
    ),
    RuleCase(  # a loader that waits for its files decodes nothing while it waits
        "image-decoding",
        deserves=with_stage(_DECODES, "load", "load", wall_s_per_batch=0.0145, cpu_s_per_batch=0.0140),
        healthy=with_stage(_DECODES, "load", "load", wall_s_per_batch=0.0145, cpu_s_per_batch=0.0010),
        stage="load",
    ),
    RuleCase(
        "image-decoding", deserves=_FETCHES, healthy=held_by("augment", evidence=_FETCHES.evidence), stage="fetch"
    ),
    RuleCase(
        "cache-dataset",
        deserves=replace(_DECODES, pipeline=_FITS, environment=_MEMORY),
        healthy=replace(_DECODES, environment=_MEMORY),  # 56 GB
        stage="load",
    ),
    RuleCase(  # random, or something of it
        "cache-dataset", deserves=_again(), healthy=_again(stages=[]), stage="load"
    ),
    RuleCase(  # 1 MB is read from a disk in 5 ms
        "cache-dataset",
        deserves=_again(length=100_000, seconds_per_sample=0.02),
        healthy=_again(length=100_000),
        stage="load",
    ),
    RuleCase("keep-distinct", deserves=_few(), healthy=_few(different=118, seen_once=117), stage="load"),
    RuleCase(  # as many would come again, but others are still to come
        "keep-distinct", deserves=_few(seen_once=6), healthy=_few(seen_once=7), stage="load"
    ),
    RuleCase("keep-distinct", deserves=_few(), healthy=_few(length=40), stage="load"),
    RuleCase("keep-distinct", deserves=_few(), healthy=_few(bytes_each=1e9), stage="load"),
    RuleCase("keep-distinct", deserves=_few(), healthy=_few(held="copy"), stage="load"),
    RuleCase("amplification", deserves=_touches(), healthy=_touches(kept_per_sample=2e6, **_ONE_BY_ONE), stage="load"),
    RuleCase(  # a library that takes little of the stage
        "amplification", deserves=_touches(), healthy=_touches(share=0.1), stage="load"
    ),
    RuleCase(  # a group that is kept, or read in its order
        "amplification", deserves=_touches(), healthy=_touches(touched_per_sample=0, opens=1), stage="load"
    ),
    RuleCase(  # a file for each sample has to be opened
        "amplification", deserves=_touches(**_OPENS), healthy=_touches(**_OPENS, **_ONE_BY_ONE), stage="load"
    ),
    RuleCase(  # reading that takes its time, and computing that makes little of much
        "amplification",
        deserves=_touches(**_READ, line="pickle.load"),
        healthy=_touches(**_READ, line="scipy.signal.resample"),
        stage="load",
    ),
    RuleCase(  # a library that keeps what it reads says more than all bytes
        "amplification",
        deserves=_touches(**_READ, line="pickle.load"),
        healthy=_touches(**_READ, line="pickle.load", others=[{"source": "video", "stage": "load", "share": 0.9}]),
        stage="load",
    ),
    RuleCase(  # a shard that is loaded for one of its samples, and one that holds a sample
        "amplification",
        deserves=_touches(**_READ, others=[_SHARD]),
        healthy=_touches(**_READ, kept_per_sample=4e6, others=[_SHARD]),
        stage="load",
    ),
    RuleCase(  # a file of an image cannot be read in part
        "amplification",
        deserves=_touches(**_READ, line="torch.serialization.load"),
        healthy=_touches(**_READ, line="torchvision.io.image.read_image"),
        stage="load",
    ),
    RuleCase(
        "amplification",
        deserves=_touches(
            source="video", unit="frames", touched_per_sample=60, kept_per_sample=2, rows_per_sample=None
        ),
        healthy=_touches(source="video", unit="frames", touched_per_sample=2, kept_per_sample=2, **_ONE_BY_ONE),
        stage="load",
    ),
    RuleCase(  # batches whose tensors are parts of much larger ones, and parts that are much of them
        "amplification",
        deserves=_touches(source="views", opens=None),
        healthy=_touches(source="views", opens=None, kept_per_sample=2e6),
        stage="load",
    ),
    RuleCase(  # the same where sending them limits the job, and small ones
        "amplification",
        deserves=_touches("handoff", source="views", stage="load", opens=None),
        healthy=_touches(
            "handoff", source="views", stage="load", opens=None, touched_per_sample=4e3, kept_per_sample=16
        ),
        stage="handoff",
    ),
    RuleCase(
        "fetch-in-batches",
        deserves=_TINY,
        healthy=replace(_TINY, evidence={"loader": {"fetches_batches": True, "iterable": False}}),
        stage="load",
    ),
    RuleCase(  # samples that take their time
        "fetch-in-batches",
        deserves=_TINY,
        healthy=held_by("load", evidence=_TINY.evidence, pipeline={"batch_size": 64}),
        stage="load",
    ),
    RuleCase(  # a cost that is not the samples' own
        "fetch-in-batches",
        deserves=_TINY,
        stage="load",
        healthy=with_stage(
            with_stage(_TINY, "load", "load", wall_s_per_batch=1e-5), "augment", "augment", wall_s_per_batch=1e-5
        ),
    ),
    RuleCase(  # stages that cannot be told apart: all of them are what the calls take
        "fetch-in-batches",
        deserves=with_stage(_UNRESOLVED, "collate", "collate", wall_s_per_batch=32e-6),
        healthy=with_stage(
            replace(_UNRESOLVED, evidence={"loader": {"fetches_batches": True, "iterable": False}}),
            "collate",
            "collate",
            wall_s_per_batch=32e-6,
        ),
    ),
    RuleCase(
        "unused-columns",
        deserves=_COLUMNS,
        healthy=replace(_COLUMNS, evidence={"payload": {"bytes": 1e6, "unread": [], "unread_bytes": 0}}),
        stage="handoff",
    ),
    RuleCase(  # a small batch is not moved by the byte
        "unused-columns",
        deserves=held_by("handoff", evidence={"payload": {**_COLUMNS.evidence["payload"], "bytes": 9e5}}),
        healthy=held_by("augment"),
    ),
    RuleCase(  # a step that reads nothing stands for another one
        "unused-columns",
        deserves=_COLUMNS,
        healthy=replace(_COLUMNS, evidence={"payload": {"bytes": 1e6, "unread": ["['a']"], "unread_bytes": 1e6}}),
        stage="handoff",
    ),
    RuleCase(
        "unused-columns",
        deserves=held_by("load", evidence=_COLUMNS.evidence),
        healthy=held_by("load", evidence={"payload": {**_COLUMNS.evidence["payload"], "unread_bytes": 8}}),
    ),
)
