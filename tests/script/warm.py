"""Runs `bottleneck run` with several arguments at the same time: `warm.py RUNS.JSON`.

Each run is a separate process that has imported torch when it is forked: importing it takes a core for seconds.
RUNS.JSON has [FOLDER, ARGUMENTS] of each; next to FOLDER go FOLDER.out, FOLDER.err and, at last, FOLDER.status: the
process id and the exit status.
"""

import json
import os
import runpy
import sys
from pathlib import Path

import bottleneck.analysis.analyse
import bottleneck.cli.main
import bottleneck.reports.render
import bottleneck.script.diagnosing  # noqa: F401 - and with it torch


def become(folder, arguments):
    """Be what a process started with `python -m bottleneck` in this folder would be."""
    os.setsid()
    os.chdir(folder)
    for number, name in enumerate((os.devnull, f"{folder}.out", f"{folder}.err")):
        opened = os.open(name, os.O_RDWR | os.O_CREAT, 0o644)
        os.dup2(opened, number)
        os.close(opened)
    sys.path[0] = folder
    sys.argv = ["bottleneck", *arguments]


def main():
    runs = dict(json.loads(Path(sys.argv[1]).read_text()))
    folders = {}
    for folder, arguments in runs.items():
        pid = os.fork()
        if not pid:
            become(folder, arguments)
            return True
        folders[pid] = folder
    while folders:
        pid, status = os.wait()
        Path(f"{folders.pop(pid)}.status").write_text(f"{pid} {os.waitstatus_to_exitcode(status)}")
    return False


if __name__ == "__main__" and main():
    runpy.run_module("bottleneck", run_name="__main__", alter_sys=True)
