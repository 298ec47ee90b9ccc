"""One module for each kind of cause; each has a tuple `RULES`."""

from bottleneck.analysis.advice.rule import Rule
from bottleneck.analysis.advice.rules import (
    augment,
    compute,
    cores,
    loading,
    many_ranks,
    payload,
    resources,
    stages,
    transfer,
    waiting,
    worker_count,
    workers,
)

RULES: tuple[Rule, ...] = (
    *many_ranks.RULES,
    *stages.RULES,
    *payload.RULES,
    *cores.RULES,
    *resources.RULES,
    *compute.RULES,
    *loading.RULES,
    *augment.RULES,
    *transfer.RULES,
    *workers.RULES,
    *worker_count.RULES,
    *waiting.RULES,
)
"""Every rule, in the order in which advice of the same gain is given; a module of rules adds its own here."""
