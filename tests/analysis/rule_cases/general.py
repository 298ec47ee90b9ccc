"""Workers, transfer, and a closer look at the stages."""

from dataclasses import replace

from tests.analysis.rule_case import WORKERS, RuleCase, with_stage
from tests.analysis.simulated import AUGMENT_BOUND, DEVICE_BOUND, LADDER, Job, measure

_LOADER = ("device", "before_collate", "before_augment", "raw")

_AUGMENT = replace(AUGMENT_BOUND, pipeline=WORKERS)
_LOAD = Job(
    coupled=dict(zip(LADDER, (0.0094, 0.0095, 0.0097, 0.0098, 0.0116, 0.0247), strict=True)),
    drained={"after_collate": 0.0012, "before_collate": 0.0021, "before_augment": 0.0040, "raw": 0.0246},
    without={"copy": 0.0246, "handoff": 0.0244, "collate": 0.0243, "augment": 0.0230, "load": 0.0116},
    pipeline=WORKERS,
)
_COLLATE = Job(
    coupled=dict(zip(LADDER, (0.0094, 0.0095, 0.0097, 0.0228, 0.0238, 0.0247), strict=True)),
    drained={"after_collate": 0.0012, "before_collate": 0.0225, "before_augment": 0.0235, "raw": 0.0246},
    without={"copy": 0.0246, "handoff": 0.0244, "collate": 0.0105, "augment": 0.0237, "load": 0.0238},
    pipeline=WORKERS,
)
_HANDOFF = Job(
    coupled=dict(zip(LADDER, (0.0094, 0.0095, 0.0228, 0.0230, 0.0238, 0.0247), strict=True)),
    drained={"after_collate": 0.0225, "before_collate": 0.0227, "before_augment": 0.0235, "raw": 0.0246},
    without={"copy": 0.0246, "handoff": 0.0105, "collate": 0.0244, "augment": 0.0237, "load": 0.0238},
    pipeline=WORKERS,
)
_COPY = Job(
    coupled=dict(zip(LADDER, (0.010, 0.018, 0.0181, 0.0181, 0.0182, 0.0182), strict=True)),
    drained={"after_collate": 0.001, "before_collate": 0.002, "before_augment": 0.004, "raw": 0.005},
    without={"copy": 0.0101, "handoff": 0.018, "collate": 0.018, "augment": 0.018, "load": 0.018},
    pipeline=WORKERS,
    environment={"device": "cuda:0"},
)
_ALONE = Job(  # the main process loads
    coupled=dict(zip(_LOADER, (0.010, 0.011, 0.025, 0.030), strict=True)),
    drained={"before_collate": 0.001, "before_augment": 0.015, "raw": 0.020},
    pipeline={**WORKERS, "num_workers": 0},
    environment={"cpu_cores_available": 8, "torch_threads": 8},
)


def _with_own_workers(job):
    """The same job, whose dataset starts processes: a worker may start none."""
    return replace(job, evidence={**job.evidence, "loader": {"own_workers": 1}})


_MANY_CORES = replace(_AUGMENT, environment={"cpu_cores_available": 64})
_SHORT_EPOCH = replace(
    DEVICE_BOUND,
    pipeline={**WORKERS, "persistent_workers": False, "dataset_length": 5_000},
    evidence={"first_batch_s": 3.0},
)
_SAVING = {"path": "[0]", "what": "float32 with 256 different values", "how": "send uint8", "bytes_saved": 30_000_000}
_BYTES = replace(_COPY, evidence={"payload": {"bytes": 40_000_000, "savings": [_SAVING]}})
_UNDECIDED = Job(coupled={"device": 0.010, "raw": 0.0107}, pipeline=WORKERS)


def _with_line(job, stage="load", **changes):
    """The same job, one line of which was seen to take most of a stage."""
    line = {
        "stage": stage, "path": "src/train.py", "line": 38, "function": "__getitem__", "share": 0.83,
        "code": "row = self.frame.iloc[index]", "calls": "pandas.core.indexing.__getitem__",
        "waiting_share": 0.02, "library": False, **changes,
    }  # fmt: skip
    return replace(job, evidence={**job.evidence, "lines": [line]})


def _with_lines(*functions):
    """A job, three lines of which take most of its loading, each little alone."""
    (line,) = _with_line(_LOAD, share=0.2, calls=None).evidence["lines"]
    lines = [{**line, "line": 8 + number, "function": name} for number, name in enumerate(functions)]
    return replace(_LOAD, evidence={"lines": lines})


def _with_client(stage="load", held=_LOAD, opened=(), **changes):
    """A job whose samples make a client each, one line of which was seen, too."""
    made = {
        "stage": stage, "name": "Client", "path": "src/train.py", "line": 36, "share": 0.77, "seen": 88,
        "looked_at": 110, "code": "client = Client(self.bucket)", **changes,
    }  # fmt: skip
    (line,) = _with_line(held, stage, share=0.77, function="__init__", calls=None).evidence["lines"]
    return replace(held, evidence={"lines": [line], "constructions": [made], "amplification": list(opened)})


_OPENED = {"source": "hdf5", "stage": "load", "samples": 16, "opens": 16, "opened_files": 1}
_MANAGER = {"calls": "multiprocessing.managers._callmethod"}
_LOCK = {"code": "fcntl.flock(lock, fcntl.LOCK_EX)", "calls": None, "waiting_share": 0.8}

CASES = (
    RuleCase("made-again", deserves=_with_client(), healthy=_with_client(share=0.2), stage="load"),
    RuleCase(  # made in few samples, for long: such as a reader for each shard
        "made-again", deserves=_with_client(seen=60), healthy=_with_client(seen=20), stage="load"
    ),
    RuleCase("made-again", deserves=_with_client(), healthy=_with_client(opened=[_OPENED]), stage="load"),
    RuleCase("made-again", deserves=_with_client(), healthy=_with_client("augment"), stage="load"),
    RuleCase("costliest-line", deserves=_with_line(_LOAD), healthy=_with_line(_LOAD, share=0.2), stage="load"),
    RuleCase(  # a line of a library is nothing to edit
        "costliest-line", deserves=_with_line(_LOAD), healthy=_with_line(_LOAD, library=True), stage="load"
    ),
    RuleCase(  # a line of a stage that delays nothing
        "costliest-line", deserves=_with_line(_LOAD), healthy=_with_line(_AUGMENT), stage="load"
    ),
    RuleCase(  # a function, and lines that have nothing to do with each other
        "costliest-line",
        deserves=_with_lines("crop", "crop", "crop"),
        healthy=_with_lines("crop", "pad", "flip"),
        stage="load",
    ),
    RuleCase("use-workers", deserves=_ALONE, healthy=replace(_ALONE, drained={**_ALONE.drained, "raw": 0.002})),
    RuleCase("use-workers", deserves=_ALONE, healthy=replace(_ALONE, environment={"cpu_cores_available": 0})),
    RuleCase("use-workers", deserves=_ALONE, healthy=_with_own_workers(_ALONE)),
    RuleCase("more-workers", deserves=_MANY_CORES, healthy=replace(_AUGMENT, environment={"cpu_cores_available": 4})),
    RuleCase(  # one process of a manager answers all workers
        "more-workers", deserves=_MANY_CORES, healthy=_with_line(_MANY_CORES, "augment", **_MANAGER)
    ),
    RuleCase(  # workers that wait for each other
        "more-workers",
        deserves=_with_line(_MANY_CORES, "augment", **{**_LOCK, "waiting_share": 0.1}),
        healthy=_with_line(_MANY_CORES, "augment", **_LOCK),
    ),
    RuleCase(
        "persistent-workers", deserves=_SHORT_EPOCH, healthy=replace(_SHORT_EPOCH, evidence={"first_batch_s": 0.1})
    ),
    RuleCase(
        "pin-memory", deserves=replace(_COPY, pipeline={**WORKERS, "pin_memory": False}), healthy=_COPY, stage="copy"
    ),
    RuleCase(
        "measure-longer",
        deserves=measure(_UNDECIDED, rounds=6, noise=0.04, seed=4),
        healthy=measure(_UNDECIDED, rounds=6, noise=0.001, seed=4),
    ),
    RuleCase("look-inside", deserves=_AUGMENT, healthy=replace(DEVICE_BOUND, pipeline=WORKERS), stage="augment"),
    RuleCase("look-inside", deserves=_COLLATE, healthy=_HANDOFF, stage="collate"),
    RuleCase("look-inside", deserves=_LOAD, healthy=_COPY, stage="load"),  # no line of the user's copies
    RuleCase(
        "look-inside",
        deserves=with_stage(_AUGMENT, "augment", "decode"),
        healthy=with_stage(_AUGMENT, "augment", "decode", wall_s_per_batch=0.020, cpu_s_per_batch=0.001),
        stage="decode",
    ),
    RuleCase(
        "cut-fetch",
        deserves=with_stage(_LOAD, "load", "fetch"),
        healthy=with_stage(_COPY, "load", "fetch"),
        stage="fetch",
    ),
    RuleCase(
        "split-stages",
        deserves=with_stage(_HANDOFF, "handoff", "handoff+collate"),
        healthy=_HANDOFF,
        stage="handoff+collate",
    ),
    RuleCase(
        "mark-other",
        deserves=with_stage(_LOAD, "load", "other"),
        healthy=with_stage(_AUGMENT, "load", "other"),
        stage="other",
    ),
    RuleCase(
        "wait-less",
        deserves=with_stage(_LOAD, "load", "load", wall_s_per_batch=0.020, cpu_s_per_batch=0.001),
        healthy=with_stage(_LOAD, "load", "load", wall_s_per_batch=0.020, cpu_s_per_batch=0.019),
        stage="load",
    ),
    RuleCase(  # where a line waits, it says what to do
        "wait-less",
        deserves=with_stage(_LOAD, "load", "load", wall_s_per_batch=0.020, cpu_s_per_batch=0.001),
        healthy=with_stage(_with_line(_LOAD), "load", "load", wall_s_per_batch=0.020, cpu_s_per_batch=0.001),
        stage="load",
    ),
    RuleCase("faster-step", deserves=replace(DEVICE_BOUND, pipeline=WORKERS), healthy=_AUGMENT, stage="compute"),
    RuleCase(
        "smaller-payload",
        deserves=_BYTES,
        healthy=replace(_BYTES, evidence={"payload": {"bytes": 40_000_000, "savings": []}}),
        stage="copy",
    ),
)
