"""Parts of `benchmarks.gpu_evidence` that run scripts: one that is tuned, and one that has all that scripts may have.

Processes that time a script alone have begun before, with all parts; a command is started as a user starts it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import bottleneck
from benchmarks.gpu_facts import Note, Place, describe, describe_tuning, keep_result
from benchmarks.gpu_host import Host

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = Path("benchmarks") / "scripts"
PLAIN_S, TUNING_S, MIN_TUNING_S = 5.0, 70.0, 40.0
_RUN_PLAIN_S, _MIN_PLAIN_S, _MIN_S, _PATIENCE_S = 6.0, 2.0, 10.0, 60.0
_PLAIN_SHARE = 0.55
"""Share of the part's time for the plain loop of `run`, which compiles first."""


def start(command: Sequence[str], folder: Path = ROOT) -> subprocess.Popen[str]:
    """Start Python with the modules of this project at hand."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    pipes: Any = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen([sys.executable, *command], cwd=folder, env=environment, text=True, **pipes)


def finish(child: subprocess.Popen[str], limit_s: float, line: str = "") -> tuple[int, str, str]:
    """Wait for a child and return its status and what it wrote, errors last; Ctrl-C ends it at the limit."""
    try:
        told, errors = child.communicate(line, timeout=limit_s)
    except subprocess.TimeoutExpired:
        child.send_signal(signal.SIGINT)
        told, errors = child.communicate()
    print(told, errors, flush=True)
    return child.returncode, told, errors


class Waiting:
    """A process that has begun torch and the device, which takes longer than the script that it then times.

    Args:
        folder: Working directory of the script.
    """

    def __init__(self, folder: Path = ROOT) -> None:
        self._child = start([str(ROOT / SCRIPTS / "gpu_waiting.py")], folder)

    def wait_until_ready(self) -> None:
        """Wait until it waits."""
        if self._child.stdout is not None:
            self._child.stdout.readline()

    def run(self, command: Sequence[str], limit_s: float) -> tuple[int, str, str]:
        """Run a script with its arguments, as `finish` does."""
        return finish(self._child, limit_s, json.dumps(command) + "\n")


class TuneScript:
    """Tunes an unmodified script, and lets it tell its own speed without the patch and with it, in turns.

    Args:
        place: Folder and device.
    """

    def __init__(self, place: Place) -> None:
        self._place, self._host = place, Host()
        self._script = SCRIPTS / "gpu_photographs.py"
        self._given, self._tuned = (place.folder.resolve() / name for name in ("as_given", "tuned"))
        for tree in (self._given, self._tuned):
            (tree / SCRIPTS).mkdir(parents=True, exist_ok=True)
            (tree / self._script).write_bytes((ROOT / self._script).read_bytes())
        trees = {"a1": self._given, "b1": self._tuned, "a2": self._given, "b2": self._tuned}
        self._waiting = {name: Waiting(tree) for name, tree in trees.items()}
        for waiting in self._waiting.values():
            waiting.wait_until_ready()

    def run(self, note: Note, limit_s: float) -> None:
        """Note what the script tells of itself, and what the tuning says; B is the script with the patch."""
        self._plain("a1", note)
        self._tune(note, limit_s)
        for name in ("b1", "a2", "b2"):
            self._plain(name, note)

    def _plain(self, name: str, note: Note) -> None:
        seconds = max(_MIN_PLAIN_S, self._place.scale * PLAIN_S)
        with self._host.calibrated() as host:
            status, told, errors = self._waiting[name].run([str(self._script), str(seconds)], _PATIENCE_S)
        facts = json.loads(told.splitlines()[-1]) if status == 0 else {"said": errors.splitlines()[-3:]}
        note(name, status=status, **facts, **host)

    def _tune(self, note: Note, limit_s: float) -> None:
        saved, patch = (self._place.folder.resolve() / name for name in ("tuning.json", "tuning.patch"))
        for path in (saved, patch):
            path.unlink(missing_ok=True)
        budget_s = max(MIN_TUNING_S, self._place.scale * TUNING_S)
        options = ["--budget", f"{budget_s:.0f}s", "--json", str(saved), "--patch", str(patch)]
        with self._host.calibrated() as host:
            began_s = time.perf_counter()
            child = start(["-m", "bottleneck", "tune", *options, str(self._script)], self._tuned)
            status, _, errors = finish(child, limit_s)
            took_s = round(time.perf_counter() - began_s, 1)
        if not saved.exists():
            note("tuning", status=status, took_s=took_s, said=errors.splitlines()[-3:], **host)
            return
        text = saved.read_text(encoding="utf-8")
        keep_result(self._place.folder, "tune_script", text)
        note("tuning", status=status, took_s=took_s, **describe_tuning(json.loads(text)), **host)
        if patch.exists() and patch.read_text(encoding="utf-8").strip():
            subprocess.run(["git", "apply", str(patch)], cwd=self._tuned, check=True)


class RunScript:
    """Runs a script under `bottleneck run` that is compiled, scales its loss, accumulates and copies ahead.

    Args:
        place: Folder and device.
    """

    def __init__(self, place: Place) -> None:
        self._place, self._host = place, Host()
        self._told = place.folder.resolve() / "told.json"
        self._script = [str(SCRIPTS / "gpu_everything.py"), str(self._told)]
        self._waiting = Waiting()
        self._waiting.wait_until_ready()

    def run(self, note: Note, limit_s: float) -> None:
        """Note what the script tells of itself, and what `run` says of it."""
        until_s = time.perf_counter() + limit_s
        seconds = max(_MIN_PLAIN_S, self._place.scale * _RUN_PLAIN_S)
        with self._host.calibrated() as host:
            status, _, errors = self._waiting.run([*self._script, str(seconds)], max(_MIN_S, _PLAIN_SHARE * limit_s))
        note("plain", status=status, **self._read(errors), **host)
        saved = self._place.folder.resolve() / "run.json"
        saved.unlink(missing_ok=True)
        with self._host.calibrated() as host:
            began_s = time.perf_counter()
            child = start(["-m", "bottleneck", "run", "--quick", "--json", str(saved), *self._script])
            status, _, errors = finish(child, max(_MIN_S, until_s - time.perf_counter() - 1))
            took_s = round(time.perf_counter() - began_s, 1)
        facts: dict[str, Any] = {}
        if saved.exists():
            facts = describe(bottleneck.load(saved))
            keep_result(self._place.folder, "run_script", saved.read_text(encoding="utf-8"))
        note("run", status=status, took_s=took_s, **facts, told=self._read(errors), **host)

    def _read(self, errors: str) -> dict[str, Any]:
        """Read the last facts that the script has told, or the end of what was said instead."""
        if not self._told.exists():
            return {"said": errors.splitlines()[-3:]}
        told: dict[str, Any] = json.loads(self._told.read_text(encoding="utf-8"))
        self._told.unlink()
        return told


PARTS = {"tune_script": TuneScript, "run_script": RunScript}
