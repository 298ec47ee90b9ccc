"""Parts of `benchmarks.gpu_evidence` that measure jobs: changes of `tune`, planted stages, photographs, scripts."""

from __future__ import annotations

import gc
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torchvision
from torch import nn
from torch.utils.data import Dataset

from benchmarks.checks import distance_outside
from benchmarks.gpu_evidence import RESULTS
from benchmarks.gpu_job import Job, Settings, resnet
from benchmarks.gpu_proofs import device_seconds, keep_busy, synchronising_forbidden
from benchmarks.planted import find_planted
from bottleneck.api import diagnose, load
from bottleneck.job.pipeline import Pipeline
from bottleneck.measure.options import ProgressUpdate
from bottleneck.results.records import Interval, Result, Stage

Note = Callable[..., None]
CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda", 0) if CUDA else torch.device("cpu")
ROOT = Path(__file__).parent.parent
TOLERANCE = 0.01
"""What the truth may be outside of an interval of the efficiency: a point."""
_PLAIN_SHARE, _LONGEST_PLAIN_S, _WARM_UP_SHARE = 0.12, 7.0, 0.6
"""What one plain loop takes of a part's time, and its warm-up of that."""


# --- helpers -----------------------------------------------------------------------------------------------


def _synchronize() -> None:
    if CUDA:
        torch.cuda.synchronize()


def samples_per_s(
    steps: Iterator[int],
    loop_s: float,
    *,
    warm_up_s: float,
    synchronize: Callable[[], None] = _synchronize,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Run a plain loop for a while and return its throughput, the device waited for at both ends only."""
    _run_for(steps, warm_up_s, clock)
    synchronize()
    began_s = clock()
    samples = _run_for(steps, loop_s, clock)
    synchronize()
    return samples / (clock() - began_s)


def _run_for(steps: Iterator[int], limit_s: float, clock: Callable[[], float]) -> int:
    until_s, samples = clock() + limit_s, 0
    while True:
        samples += next(steps)
        if clock() >= until_s:
            return samples


def _keep(folder: Path, name: str, json_text: str) -> None:
    """Keep a whole result, for a look at its blocks later."""
    with (folder / RESULTS).open("a", encoding="utf-8") as file:
        file.write(json.dumps({"name": name, "result": json.loads(json_text)}) + "\n")


def _interval(found: Interval | None) -> str:
    return "none" if found is None else f"{found.estimate:.4g} ({found.low:.4g} to {found.high:.4g})"


def _stage(result: Result, name: str) -> Stage | None:
    return next((stage for stage in result.stages if stage.name == name), None)


def _facts(result: Result) -> dict[str, Any]:
    """What a line says of a diagnosis."""
    verdict = result.verdict
    rates = {e.name: round(e.coupled.samples_per_s, 1) for e in result.experiments if e.coupled is not None}
    costs = {
        s.name: round(1e3 * s.cost_s_per_batch.estimate, 2) for s in result.stages if s.cost_s_per_batch is not None
    }
    return {
        "state": verdict.state, "bottleneck": verdict.bottleneck, "efficiency": _interval(verdict.efficiency),
        "samples_per_s": rates, "cost_ms": costs, "took_s": round(result.cost.seconds, 1),
        "warnings": sorted({warning.id for warning in result.warnings}),
    }  # fmt: skip


class _Phases:
    """Adds up what a diagnosis takes for each of its phases."""

    def __init__(self) -> None:
        self._at: list[tuple[float, str]] = [(time.perf_counter(), "start")]

    def note(self, update: ProgressUpdate) -> None:
        self._at.append((time.perf_counter(), update.phase))

    def seconds(self) -> dict[str, float]:
        """Seconds by phase, the time until a phase is first heard of counted to the one before."""
        taken: dict[str, float] = {}
        for (begun_s, phase), (until_s, _) in pairwise([*self._at, (time.perf_counter(), "")]):
            taken[phase] = round(taken.get(phase, 0.0) + until_s - begun_s, 1)
        return taken


# --- changes of tune ---------------------------------------------------------------------------------------


class _InMemory(Dataset[tuple[torch.Tensor, int]]):
    """As torchvision's CIFAR10, with its transform: the changes of payload find what they look for."""

    def __init__(self, side: int) -> None:
        from torchvision import transforms

        self.data = torch.randint(0, 256, (512, 3, 32, 32), dtype=torch.uint8)
        self.transform = transforms.Compose([
            transforms.ToPILImage(), transforms.Resize(side), transforms.ToTensor(),
            transforms.Normalize((0.5, 0.4, 0.3), (0.2, 0.3, 0.4)),
        ])  # fmt: skip

    def __len__(self) -> int:
        return 20_000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.transform(self.data[index % len(self.data)]), index % 10


def _described(optimizer: str = "AdamW", workers: int = 8) -> Pipeline:
    torch.manual_seed(0)
    model = torchvision.models.resnet18(weights=None, num_classes=10).to(DEVICE)
    return Pipeline(
        dataset=_InMemory(128 if CUDA else 32), model=model, loss_fn=nn.CrossEntropyLoss(),
        optimizer=getattr(torch.optim, optimizer)(model.parameters(), lr=1e-3), device=DEVICE,
        batch_size=128 if CUDA else 16, num_workers=workers if CUDA else 0, pin_memory=CUDA, drop_last=True,
    )  # fmt: skip


_LAST = ("cuda_graphs", "compile")
"""What could leave the device unusable, and what compiles."""


def changes(note: Note, seconds: float, _folder: Path) -> None:
    """Open each change of `tune`, measure two blocks, close it, and compare the memory before and after."""
    from bottleneck.tuner.change import Context, Setting, build
    from bottleneck.tuner.changes import BUILT_IN
    from bottleneck.tuner.changes.compiling import release_pools
    from bottleneck.tuner.lane import open_lane

    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    given = _described()
    here = Context(given, given, given.make_loader(), DEVICE, cores=len(os.sched_getaffinity(0)))
    until_s = time.perf_counter() + seconds
    given_rate = _rate_of(partial(open_lane, given, seconds, whole_epochs=False))
    for change in sorted(BUILT_IN, key=lambda change: _LAST.index(change.name) if change.name in _LAST else -1):
        if time.perf_counter() > until_s - 5:
            note(change.name, skipped="no time was left")
            continue
        why = change.why_not(here)
        setting = change.propose(here, {}) if why is None else None
        if not isinstance(setting, Setting):
            note(change.name, does_not_apply=why or "nothing to try")
            continue
        _synchronize()
        before, began_s = torch.cuda.memory_allocated(), time.perf_counter()
        open_it = partial(open_lane, build(given, (setting,)), seconds, whole_epochs=change.whole_epochs)
        try:
            facts: dict[str, Any] = {"samples_per_s": round(_rate_of(open_it)), "as_given": round(given_rate)}
        except Exception as error:  # noqa: BLE001 - what fails on a GPU is what is looked for
            facts = {"raised": f"{type(error).__name__}: {str(error).splitlines()[0][:300]}"}
        del open_it  # holds the changed job, which may have a model of its own
        release_pools(())
        gc.collect()
        kept = torch.cuda.memory_allocated() - before
        took_s = round(time.perf_counter() - began_s, 1)
        note(setting.label, **facts, kept_bytes=kept, took_s=took_s, holds="raised" not in facts and kept <= 2**20)
    _images_on_the_device(note, given)


def _rate_of(open_it: Callable[[], Any]) -> float:
    lane = open_it()
    try:
        blocks = [lane.block(number) for number in range(2)]
    finally:
        lane.close()
    return float(blocks[-1].samples / blocks[-1].seconds)


def _images_on_the_device(note: Note, given: Pipeline) -> None:
    """Whether what makes floats of bytes on the device waits for it."""
    from bottleneck.measure.device import JobOnDevice
    from bottleneck.tuner.changes import BUILT_IN

    if not CUDA:
        return
    change = next(change for change in BUILT_IN if change.name == "uint8_images")
    changed = change.apply(given)
    loader = changed.make_loader()
    job = JobOnDevice.of(changed, loader, DEVICE)
    batch = next(iter(loader))
    job.transfer(batch)
    try:
        with synchronising_forbidden():
            job.transfer(batch)
    except RuntimeError as error:
        note("uint8_images_waits", holds=False, found=str(error).splitlines()[0])
        return
    note("uint8_images_waits", holds=True, found="never")


# --- planted bottlenecks -----------------------------------------------------------------------------------


_PLANTED = ("augment_spin", "device_bound")


class DeviceStep:
    """Keeps the device busy for a time, and the host not at all: launched, not waited for."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __call__(self, batch: Any) -> None:
        if CUDA:
            keep_busy(self.seconds)
        else:
            time.sleep(self.seconds)


class Blocks(Dataset[dict[str, Any]]):
    """Big samples that cost nothing to make: what remains is moving them."""

    def __init__(self, side: int) -> None:
        self.pool = torch.rand(8, 3, side, side)

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"images": self.pool[index % 8], "labels": index % 10}


def move_in_place(batch: dict[str, torch.Tensor], device: torch.device) -> dict[str, torch.Tensor]:
    """Move a batch as many loops do: the batch that came from the loader is another one afterwards."""
    for key, value in batch.items():
        batch[key] = value.to(device)
    return batch


def planted(note: Note, seconds: float, folder: Path) -> None:
    """Diagnose jobs with a planted bottleneck, and a copy that changes its own batch next to one that does not."""
    copies = (("moves_in_place", move_in_place), ("default_transfer", None)) if CUDA else ()
    each_s = max(8.0, seconds / (len(_PLANTED) + len(copies)) - 3)
    for name in _PLANTED:
        job = find_planted(name)
        step = DeviceStep(job.step_s)
        fields = job.build(device=str(DEVICE), train_step=step, pin_memory=CUDA)
        result = diagnose(fields, quick=True, budget=each_s)
        _keep(folder, name, result.to_json())
        right = (result.verdict.state, result.verdict.bottleneck) == (job.state, job.bottleneck)
        events_ms = 1e3 * device_seconds(partial(step, None)) if CUDA else None
        note(name, holds=right, planted=job.bottleneck, step_ms_by_events=events_ms, **_facts(result))
    for name, move in copies:
        fields = {
            "dataset": Blocks(224), "train_step": DeviceStep(0.01), "to_device": move, "device": DEVICE,
            "batch_size": 64, "num_workers": 8, "pin_memory": False, "drop_last": True,
        }  # fmt: skip
        result = diagnose(fields, quick=True, budget=each_s)
        _keep(folder, name, result.to_json())
        batch = torch.rand(64, 3, 224, 224)
        copy_s = min(device_seconds(partial(batch.to, DEVICE)) for _ in range(5))
        copy = _stage(result, "copy")
        cost = copy.cost_s_per_batch if copy is not None else None
        holds = cost is not None and cost.high >= 0.8 * copy_s
        note(name, holds=holds, copy_ms_by_events=1e3 * copy_s, copy_cost_s=_interval(cost), **_facts(result))


# --- photographs -------------------------------------------------------------------------------------------


def _tiny() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 1000))


def _settled(settings: Settings) -> tuple[Settings, Callable[[], nn.Module]]:
    """The settings as they are on a GPU, and small ones without."""
    return (settings, resnet) if CUDA else (Settings(workers=2, batch_size=16, pinned=False, side=64), _tiny)


def trial(settings: Settings, note: Note, seconds: float, folder: Path) -> None:
    """Diagnose a job between plain loops of it, which use nothing of bottleneck's."""
    settings, make_model = _settled(settings)
    plain_s = min(_LONGEST_PLAIN_S, _PLAIN_SHARE * seconds)
    began_s = time.perf_counter()

    def rate(on_device: bool) -> float:
        job = Job(settings, DEVICE, make_model)
        steps = job.steps_on_device() if on_device else job.steps()
        return samples_per_s(steps, plain_s, warm_up_s=(2.0 if settings.compiled else _WARM_UP_SHARE) * plain_s)

    before, on_device = rate(False), rate(True)
    peak = torch.cuda.max_memory_allocated() if CUDA else 0
    note("plain_loops", job=str(settings), samples_per_s=before, on_device=on_device, peak_bytes=peak)
    used_s = time.perf_counter() - began_s
    # The same plain loop again needs over half of what the first two took, and a diagnosis ends a little late.
    phases = _Phases()
    if CUDA:
        torch.cuda.reset_peak_memory_stats()
    result = diagnose(
        Job(settings, DEVICE, make_model).fields(), budget=max(6.0, 0.95 * seconds - 1.9 * used_s), progress=phases.note
    )
    _keep(folder, str(settings), result.to_json())
    note("where_the_time_went", **phases.seconds())
    note("diagnosis", **_facts(result), peak_bytes=torch.cuda.max_memory_allocated() if CUDA else 0)
    gc.collect()  # a worker of the plain loop must not collect what the job before has left on the device
    after = rate(False)
    found = result.verdict.efficiency
    truth = (before + after) / 2 / on_device
    raw = next((e.coupled.samples_per_s for e in result.experiments if e.name == "raw" and e.coupled), None)
    note(
        "against_plain_loops", holds=distance_outside(found, truth) <= TOLERANCE, efficiency=_interval(found),
        by_plain_loops=truth, plain_before=before, plain_after=after,
        raw_over_plain=None if raw is None else 2 * raw / (before + after),
    )  # fmt: skip


# --- scripts and tune --------------------------------------------------------------------------------------


def scripts(note: Note, seconds: float, folder: Path) -> None:
    """Run scripts that break where somebody else copies their batches."""
    for name in ("gpu_prefetch", "gpu_host_labels"):
        result, counted = folder / f"{name}.json", folder / f"{name}.txt"
        command = [sys.executable, "-m", "bottleneck", "run", "--quick", "--json", str(result)]
        script = str(Path("benchmarks") / "scripts" / f"{name}.py")
        facts: dict[str, Any] = {}
        if name == "gpu_prefetch":
            _run_script([sys.executable, script, str(counted)], 0.18 * seconds)
            facts["wrong_images_without_us"], _ = _counted(counted)
        began_s = time.perf_counter()
        status, _, errors = _run_script([*command, script, str(counted)], max(10.0, 0.41 * seconds - 1))
        facts |= {"status": status, "took_s": round(time.perf_counter() - began_s, 1)}
        holds = status == 0
        if result.exists():
            facts |= _facts(load(result))
            _keep(folder, name, result.read_text(encoding="utf-8"))
            result.unlink()
        else:
            facts["said"] = errors.strip().splitlines()[-3:]
        if counted.exists():
            facts["wrong_images"], facts["seen_images"] = _counted(counted)
            holds &= facts["wrong_images"] == 0
        note(name, holds=holds, **facts)


def _run_script(command: Sequence[str], limit_s: float, folder: Path = ROOT) -> tuple[int, str, str]:
    """Run a script and return its status and what it wrote, errors last; Ctrl-C ends it at the limit."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    child = subprocess.Popen(command, cwd=folder, env=environment, **pipes)
    try:
        told, errors = child.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        child.send_signal(signal.SIGINT)
        told, errors = child.communicate()
    print(told, errors, flush=True)
    return child.returncode, told, errors


def _counted(path: Path) -> tuple[int, int]:
    """The wrong images and all images that a script has counted; -1 where it never came to it."""
    wrong, seen = map(int, path.read_text(encoding="utf-8").split()) if path.exists() else (-1, -1)
    path.unlink(missing_ok=True)
    return wrong, seen


def tune_script(note: Note, seconds: float, folder: Path) -> None:
    """Tune an unmodified script, and time it by itself before and with the patch that the tuning wrote."""
    tree, saved, patch = folder / "tree", folder / "tuning.json", folder / "tuning.patch"
    script = Path("benchmarks") / "scripts" / "gpu_photographs.py"
    (tree / script.parent).mkdir(parents=True, exist_ok=True)
    (tree / script).write_bytes((ROOT / script).read_bytes())
    plain_s = min(12.0, 0.08 * seconds)

    def rate() -> float:
        status, told, _ = _run_script([sys.executable, str(script), f"{plain_s}"], seconds, tree)
        return float(told.split()[0]) if status == 0 else math.nan

    before = rate()
    options = ["--budget", f"{0.68 * seconds:.0f}s", "--json", str(saved.resolve()), "--patch", str(patch.resolve())]
    status, _, errors = _run_script([sys.executable, "-m", "bottleneck", "tune", *options, str(script)], seconds, tree)
    if not saved.exists():
        note("tune_script", holds=False, status=status, before=before, said=errors.strip().splitlines()[-3:])
        return
    tuning = json.loads(saved.read_text(encoding="utf-8"))
    _keep(folder, "tune_script", saved.read_text(encoding="utf-8"))
    _note_rungs(note, tuning)
    told = {key: tuning.get(key) for key in ("gain", "sentence", "seconds")}
    note("tune_script", status=status, before=before, **told)
    subprocess.run(["git", "apply", str(patch.resolve())], cwd=tree, check=True)
    after = rate()
    note("patched", holds=after > before, before=before, after=after, gain=after / before)


def _note_rungs(note: Note, tuning: dict[str, Any]) -> None:
    for rung in tuning.get("ladder", ()):
        rate = rung["rate"]
        note("rung", settings=rung["settings"], samples_per_s=[rate["samples_per_s"], rate["low"], rate["high"]])


def tune(note: Note, seconds: float, folder: Path) -> None:
    """Tune the job of PyTorch's profiler tutorial; what was found is written also when it fails."""
    from bottleneck.errors import BottleneckError
    from bottleneck.tuner.tune import tune as tune_job
    from examples.seed_ladder import build

    names = ["num_workers", "pin_memory", "uint8_images", "autocast", "batch_size", "channels_last"]
    failure, tuning = "", None
    try:
        job = build() if CUDA else build(images=2000, size=32)
        tuning = tune_job(job, try_=names, budget=max(20.0, seconds - 12))
    except BottleneckError as error:
        failure, tuning = error.message, getattr(error, "tuning", None)
    if tuning is None:
        note("tune", holds=False, raised=failure)
        return
    print(tuning, flush=True)
    _keep(folder, "tune", tuning.to_json())
    _note_rungs(note, json.loads(tuning.to_json()))
    gains = tuning.gain is not None or not CUDA  # the job is known to gain on a GPU, by its workers alone
    note("tune", holds=gains and not failure, sentence=tuning.sentence, raised=failure or None)


PARTS: dict[str, Callable[[Note, float, Path], None]] = {
    "changes": changes,
    "planted": planted,
    "photographs": partial(trial, Settings(workers=16)),
    "pageable": partial(trial, Settings(workers=16, pinned=False)),
    "few_workers": partial(trial, Settings(workers=3)),
    "compiled": partial(trial, Settings(workers=16, compiled=True)),
    "large": partial(trial, Settings(workers=16, batch_size=512)),
    "scripts": scripts,
    "tune": tune,
    "tune_script": tune_script,
}
