"""Storage behind a network: the paces of four workers, and of sixteen in a trial."""

from tests.analysis.rule_case import RuleCase, held_by

_JOB = {
    "num_workers": 4,
    "requests": 100,
    "samples_per_s": 40.0,
    "requests_per_s": 40.0,
    "bytes_per_s": 20e6,
    "in_flight": 3.9,
    "first_byte_s": 0.05,
    "transfer_s": 0.05,
    "refused": 0,
}
LATENCY = {
    **_JOB,
    "num_workers": 16,
    "samples_per_s": 160.0,
    "requests_per_s": 160.0,
    "bytes_per_s": 80e6,
    "in_flight": 15.6,
}
NARROW = {**_JOB, "num_workers": 16, "in_flight": 15.8, "transfer_s": 0.35}
RATIONED = {**_JOB, "num_workers": 16, "in_flight": 15.8, "first_byte_s": 0.35}


def network(*, job=None, **changes):
    """The requests of a job, which wait for most of a worker's time."""
    return {
        "stage": "load",
        "requests_per_sample": 1.0,
        "bytes_per_sample": 500e3,
        "connections_per_request": 0.0,
        "connecting_s": None,
        "share": 0.95,
        "computing_share": 0.05,
        "job": {**_JOB, **(job or {})},
        "more": None,
        **changes,
    }


def _held(**changes):
    return held_by("load", evidence={"network": network(**changes)})


CASES = (
    RuleCase("storage-latency", deserves=_held(more=LATENCY), healthy=_held(more=NARROW), stage="load"),
    RuleCase("storage-latency", deserves=_held(more=LATENCY), healthy=_held(), stage="load"),
    RuleCase("storage-bandwidth", deserves=_held(more=NARROW), healthy=_held(more=LATENCY), stage="load"),
    RuleCase("storage-requests", deserves=_held(more=RATIONED), healthy=_held(more=NARROW), stage="load"),
    RuleCase(
        "storage-requests",
        deserves=_held(job={"refused": 30}),
        healthy=_held(
            job={
                "refused": 0,
            }
        ),
        stage="load",
    ),
    RuleCase(
        "storage-requests",
        deserves=_held(more=RATIONED),
        healthy=held_by("augment", evidence={"network": network(more=RATIONED)}),
        stage="load",
    ),
    RuleCase("client-computes", deserves=_held(computing_share=0.9), healthy=_held(), stage="load"),
    RuleCase("client-computes", deserves=_held(computing_share=0.9), healthy=held_by("load"), stage="load"),
)
