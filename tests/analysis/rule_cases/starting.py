"""Scripts that take long to start."""

from dataclasses import replace

from tests.analysis.rule_case import WORKERS, RuleCase
from tests.analysis.simulated import DEVICE_BOUND

SLOW_IMPORT = {
    "part": "imports", "path": "train.py", "line": 5, "code": "import slow", "seconds": 3.0, "again": True,
}  # fmt: skip
GUARDED = {**SLOW_IMPORT, "again": False}
LISTS = {
    "part": "making the dataset", "path": "data.py", "line": 9, "code": "self.files = sorted(os.listdir(root))",
    "seconds": 4.0, "again": False,
}  # fmt: skip


def starting(*lines, method="spawn", bare_s=5.0, workers_s=10.0, **parts):
    """A script whose workers take `workers_s` to start, one after the other."""
    named = {"imports": 5.0, "making the dataset": 4.0, "imports again in workers": workers_s, "first step": 0.1}
    named |= parts
    return replace(
        DEVICE_BOUND,
        pipeline={**WORKERS, "num_workers": 2},
        evidence={
            "starting": {
                "seconds": sum(named.values()),
                "parts": [{"name": name, "seconds": seconds} for name, seconds in named.items()],
                "lines": list(lines),
                "bare_worker_s": bare_s,
                "full_worker_s": bare_s,
            },
            "loader": {"start_method": method},
        },
    )


CASES = (
    RuleCase(
        "slow-start",
        deserves=starting(SLOW_IMPORT),
        healthy=starting({**SLOW_IMPORT, "seconds": 0.5}, workers_s=1.0, bare_s=0.5),
    ),
    RuleCase(  # a server that has everything imported starts them all
        "slow-start", deserves=starting(GUARDED), healthy=starting({**GUARDED, "seconds": 0.5}, method="fork")
    ),
    RuleCase("slow-start", deserves=starting(LISTS, method="fork"), healthy=starting(method="fork")),
)
