"""Cases of workers: their start, their copies of the dataset, and their use."""

from dataclasses import replace

from tests.analysis.rule_case import RuleCase, held_by

_SPAWNED = {"start_method": "spawn", "dataset_pickle_bytes": 4e8, "dataset_pickle_s": 1.5,
            "dataset_pickle_complete": True, "python_objects_largest": "self.samples"}  # fmt: skip
_OBJECTS = {
    "start_method": "fork",
    "python_objects": 20_000_000,
    "python_object_bytes": 1.2e9,
    "python_objects_largest": "self.samples",
}
_FREE = {"memory_available_bytes": 16e9}
_OPEN = {"open_handles": [{"path": "self.file", "type": "h5py.File"}]}


def _job(facts, **settings):
    return held_by("load", evidence={"loader": facts}, **settings)


_FEW_EPOCHS = {"dataset_length": 10_000, "persistent_workers": False}
_HANDED = held_by("handoff")
_HANDED = replace(_HANDED, drained={**_HANDED.drained, "raw": _HANDED.drained["after_collate"] + 0.0008})

CASES = (
    RuleCase("no-workers-better", deserves=_HANDED, healthy=held_by("load")),
    RuleCase("no-workers-better", deserves=_HANDED, healthy=replace(_HANDED, pipeline={"num_workers": 0})),
    RuleCase(
        "spawn-pickling",
        deserves=_job(_SPAWNED, pipeline=_FEW_EPOCHS),
        healthy=_job({**_SPAWNED, "dataset_pickle_bytes": 5e3, "dataset_pickle_s": 1e-4}, pipeline=_FEW_EPOCHS),
    ),
    RuleCase("spawn-pickling", deserves=_job(_SPAWNED), healthy=_job({**_SPAWNED, "start_method": "fork"})),
    RuleCase("fork-unsafe-handles", deserves=_job(_OPEN), healthy=_job({"open_handles": []})),
    RuleCase("fork-unsafe-handles", deserves=_job(_OPEN), healthy=_job(_OPEN, pipeline={"num_workers": 0})),
    RuleCase(
        "python-objects",
        deserves=_job(_OBJECTS, environment=_FREE),
        healthy=_job({**_OBJECTS, "python_object_bytes": 1e8}, environment=_FREE),
    ),
    RuleCase(
        "python-objects",
        deserves=_job(_OBJECTS, environment=_FREE),
        healthy=_job({**_OBJECTS, "start_method": "spawn"}, environment=_FREE),
    ),
)
