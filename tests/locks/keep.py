"""Writes what the locks compare: `python -m tests.locks.keep results`.

Only where a change is meant to alter what a lock guards, in the commit of that change, whose message says which numbers
move and why. A change that only moves, merges or renames code never needs it: there, a lock that fails has found a
fault.

    results     conclusions of the results in `results/`, from the measurements, which stay unchanged
    schedule    which experiment is visited when, and for how long
    calls       how many of bottleneck's calls a batch takes
    stages      which of the user's functions run in which experiment
    ranks       the same as `schedule`, of two ranks in step, and their trials
    tunings     trials, kept changes and measurements of tunings, two of them of two ranks
    scripts     findings, questions and measurements of the loops of scripts

What was measured comes from `bottleneck ... --json FILE`; another such file becomes one of the results by
`python -m tests.locks.keep results FILE ...`.
"""

import json
import sys
from pathlib import Path

from tests.locks import kept, results


def keep_results(files):
    folder = Path(__file__).parent / "results"
    for path in map(Path, files):
        results.write(folder / f"{path.stem}.json.gz", json.loads(path.read_text(encoding="utf-8")))
    for path in sorted(folder.glob("*.json.gz")):
        results.write(path, results.analysed_again(results.read(path)))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["results", *files]:
            keep_results(files)
        case ["schedule" | "calls" | "stages" | "ranks" | "tunings" | "scripts" as what]:
            kept.keep(what)
        case _:
            sys.exit(__doc__)
