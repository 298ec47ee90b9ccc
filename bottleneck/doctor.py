"""`bottleneck doctor`: check that this machine and its packages are ready for a diagnosis.

A missing package is a finding, so each examination imports what it needs.
"""

from __future__ import annotations

import inspect
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from bottleneck._pydata import VERSION, installed_version
from bottleneck.measure.machine.limits import allowed_cores, shm_usage, usable_cores
from bottleneck.measure.passes.pyspy import allow_tracing, find_py_spy, why_py_spy_fails
from bottleneck.results.format import size

if TYPE_CHECKING:
    from bottleneck.measure.machine.environment import OtherLoad

PY_SPY_LIMIT_S = 10.0
"""Maximum time for py-spy to inspect a process."""
_LOAD_S = 1.0
"""Duration of the load check; kernels count processor time in ticks of about 10 ms, so that less is imprecise."""
_MAX_LOAD_CORES = 0.5
_MAX_LOAD_SHARE = 0.1
"""Harmless load by other processes: half a core, or a tenth of the usable cores if that is more."""
_MAX_SWAP_SHARE = 0.05
"""Share of the memory; a little swap holds pages that are long unused, and costs nothing."""
_MIN_FREE_BYTES = 1 << 30
_MIN_SHARED_MEMORY_BYTES = 1 << 30
_MIN_OPEN_FILES = 4096
_FIRST_USE_BYTES = 2 << 30
"""Generous size of the first allocation by a device itself; less is not a sign of other processes."""
# With Yama's scope 1 a process can be inspected only by those that it allows; workers do the same.
_TRACED = "from __future__ import annotations\n{}\nallow_tracing()\nprint('ready', flush=True)\nsys.stdin.read()\n"


@dataclass(frozen=True)
class Finding:
    """Result of one examination."""

    status: Literal["ok", "warning", "problem"]
    """A problem makes measuring impossible; a warning means that it is hindered or blurred."""
    message: str
    remedy: str = ""


def examine_machine() -> dict[str, Finding]:
    """Return the findings of all examinations, by subject."""
    findings = {}
    for subject, examination in EXAMINATIONS.items():
        try:
            findings[subject] = examination()
        except Exception as error:  # noqa: BLE001 - one that this system forbids must not prevent the others
            findings[subject] = Finding("warning", f"not examined: {_first_line(error)}")
    return findings


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _warn_if(hindered: bool, message: str, remedy: str) -> Finding:
    return Finding("warning", message, remedy) if hindered else Finding("ok", message)


def examine_torch() -> Finding:
    """Examine if torch can be imported."""
    try:
        import torch
    except (ImportError, OSError) as error:
        return Finding("problem", f"cannot be imported: {_first_line(error)}", "pip install torch torchvision")
    return Finding("ok", str(torch.__version__))


def examine_torchvision() -> Finding:
    """Examine if torchvision matches torch, by using an operator that is compiled against it."""
    if installed_version("torchvision") is None:
        return Finding("ok", "not installed; only the demo needs it")
    try:
        import torch
        import torchvision

        kept = torchvision.ops.nms(torch.tensor([[0.0, 0.0, 1.0, 1.0]]), torch.tensor([1.0]), 0.5).tolist()
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        kept = _first_line(error)
    return _warn_if(
        kept != [0],
        f"does not work with this torch: {kept}" if kept != [0] else f"{torchvision.__version__}, matches torch",
        "Install the pair together from one place: pip install --force-reinstall torch torchvision",
    )


def examine_device(root: Path = Path("/")) -> Finding:
    """Examine the default device, by one operation on it.

    Args:
        root: Root folder of the system's files.
    """
    import torch

    from bottleneck.job.step import resolve_device

    try:
        device = resolve_device(None)
        if device.type == "cpu":
            return _explain_missing(torch, root)
        (torch.ones(2, device=device) * 2).sum().item()
    except RuntimeError as error:
        remedy = "Install a build of torch that is made for this device and driver, or write --device cpu."
        return Finding("problem", f"the accelerator does not work: {_first_line(error)}", remedy)
    if device.type != "cuda":
        return Finding("ok", f"{device}, works")
    free, total = torch.cuda.mem_get_info(device)
    toolkit = f"CUDA {torch.version.cuda}" if torch.version.cuda else f"ROCm {torch.version.hip}"
    message = f"{device}, {torch.cuda.get_device_name(device)}, {toolkit}, {size(free)} of {size(total)} free"
    shared = total - free > max(_FIRST_USE_BYTES, 0.1 * total)
    return _warn_if(
        shared,
        f"{message}: another process uses it" if shared else message,
        "nvidia-smi shows who; a shared device makes every time unsteady.",
    )


def _explain_missing(torch: Any, root: Path) -> Finding:
    """Return why a machine with NVIDIA's driver has no device for torch."""
    if not (root / "proc/driver/nvidia/version").exists() and not shutil.which("nvidia-smi"):
        return Finding("ok", "cpu: no accelerator, the train step competes with the workers for cores")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if torch.version.cuda is None:
        why = f"this torch {torch.__version__} is built without CUDA"
        remedy = "Install a CUDA build of torch and torchvision; PyTorch's 'Get started' page has the command."
    elif visible is not None and visible.strip() in ("", "-1", "NoDevFiles"):
        why, remedy = f"CUDA_VISIBLE_DEVICES={visible!r} hides it", "unset CUDA_VISIBLE_DEVICES"
    elif not any((root / "dev").glob("nvidia[0-9]*")):
        why = "this process sees no /dev/nvidia0"
        remedy = "In Docker: --gpus all; on a cluster ask for a GPU when the job is started."
    else:
        why, remedy = f"CUDA {torch.version.cuda} finds no device", "Update the driver, or install an older build."
        try:
            torch.cuda.init()
        except (RuntimeError, AssertionError) as error:
            why = _first_line(error)
    return Finding("warning", f"cpu, although an NVIDIA driver is installed: {why}", remedy)


def examine_cores() -> Finding:
    """Compare the cores of the machine with those that this process may use."""
    present, allowed, usable = os.cpu_count() or 1, allowed_cores(), usable_cores()
    if usable >= present:
        return Finding("ok", f"{present}, all usable")
    why = "the affinity" if usable >= allowed else "the quota of its control group"
    message = f"{usable:g} of {present} usable: {why} limits this process"
    return Finding("warning", message, "Choose num_workers by the usable cores, not by os.cpu_count().")


def examine_threads() -> Finding:
    """Compare the threads of torch in the main process with the usable cores."""
    import torch

    threads, usable = torch.get_num_threads(), max(1, int(usable_cores()))
    chosen = [name for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS") if name in os.environ]
    settings = ", ".join(f"{name}={os.environ[name]}" for name in chosen) or "OMP_NUM_THREADS is not set"
    few = threads > usable
    message = f"torch uses {threads}, {settings}" + (f"; {usable} usable cores" if few else "")
    return _warn_if(few, message, f"export OMP_NUM_THREADS={usable}")


def examine_load(others: OtherLoad | None = None, sleep: Callable[[float], None] = time.sleep) -> Finding:
    """Examine how many cores other processes keep busy, over a short time.

    Args:
        others: Load counter; None: for this machine.
        sleep: Function that waits for some seconds.
    """
    if others is None:
        from bottleneck.measure.machine.environment import OtherLoad

        others = OtherLoad()
    others.start()
    sleep(_LOAD_S)
    cores = others.stop()
    return _warn_if(
        cores > max(_MAX_LOAD_CORES, _MAX_LOAD_SHARE * usable_cores()),
        f"other processes use {cores:.1f} cores (over {_LOAD_S:g} s)",
        "End them, or wait: they slow down and blur the measurements.",
    )


def examine_memory() -> Finding:
    """Examine free memory within the limit of the container, and the swap of the whole machine in use."""
    import psutil

    from bottleneck.measure.machine.environment import free_memory_bytes, memory_bytes

    machine, total, free = psutil.virtual_memory().total, memory_bytes(), free_memory_bytes()
    swapped = psutil.swap_memory().used
    limited = f" (limit of the container; the machine has {size(machine)})" if total < machine else ""
    message = f"{size(free)} free of {size(total)}{limited}, {size(swapped)} of swap in use"
    if swapped > _MAX_SWAP_SHARE * machine:
        remedy = "Reading swapped pages back looks like slow loading: end programs that fill the memory."
        return Finding("warning", message, remedy)
    return _warn_if(free < _MIN_FREE_BYTES, message, "End other processes, or use fewer workers.")


def examine_shared_memory() -> Finding:
    """Examine the shared memory, through which workers hand over batches."""
    found = shm_usage()
    if found is None:
        return Finding("ok", "no /dev/shm on this system")
    return _warn_if(
        found.free < _MIN_SHARED_MEMORY_BYTES,
        f"/dev/shm has {size(found.total)}, {size(found.free)} of it free",
        "In Docker: --shm-size=8g or --ipc=host; otherwise use fewer workers.",
    )


def examine_open_files() -> Finding:
    """Examine the limit of open files, as which workers hand over tensors if that is torch's strategy."""
    import torch.multiprocessing

    from bottleneck.measure.machine.environment import open_files_limit

    limit = open_files_limit()
    message = "no limit" if limit is None else f"at most {limit}"
    if torch.multiprocessing.get_sharing_strategy() == "file_system":  # type: ignore[no-untyped-call]  # torch's
        return Finding("ok", f"{message}; tensors are handed over as named files, which are closed at once")
    few = limit is not None and limit < _MIN_OPEN_FILES
    return _warn_if(few, f"{message}; each tensor in transit needs one", 'ulimit -n "$(ulimit -Hn)"')


def examine_py_spy(limit_s: float = PY_SPY_LIMIT_S) -> Finding:
    """Examine if py-spy exists, and can inspect another process.

    Args:
        limit_s: Maximum time for it.
    """
    program = find_py_spy()
    if program is None:
        return Finding("warning", "not found: no profiles of the workers", "pip install py-spy")
    failure = _try_py_spy(program, limit_s)
    return _warn_if(
        bool(failure),
        f"{installed_version('py-spy') or 'found on the path'}, {failure or 'sees into a child process'}",
        "Without it, there are no flamegraphs of the workers.",
    )


def _try_py_spy(program: str, limit_s: float) -> str:
    # -S: starts at once, without the start-up code of the environment.
    command = [sys.executable, "-S", "-c", _TRACED.format("import ctypes, sys\n" + inspect.getsource(allow_tracing))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        try:
            if child.stdout is None or child.stdout.readline().strip() != b"ready":
                return "but a child process for testing it did not start"
            failure = why_py_spy_fails(program, child.pid, limit_s)
            return f"but {failure}" if failure else ""
        finally:
            child.kill()


def examine_import_name() -> Finding:
    """Examine who owns the import name `bottleneck`, which pydata's Bottleneck has too."""
    import bottleneck

    theirs = installed_version("Bottleneck")
    reinstall = "pip install --force-reinstall --no-deps "
    if "Pipeline" in getattr(bottleneck, "__all__", ()):
        message = "`import bottleneck` gives this package"
        if theirs is not None:
            message += f", although pydata's Bottleneck {theirs} is installed: pandas and others compute without it"
        return _warn_if(theirs is not None, message, f"{reinstall}Bottleneck")
    if getattr(bottleneck, "__file__", None) is None:
        message = "`import bottleneck` finds a folder without an __init__.py, so that `import pandas` fails"
        return Finding("warning", message, reinstall + ("torch-bottleneck" if theirs is None else "Bottleneck"))
    return Finding(
        "ok",
        f"`import bottleneck` gives pydata's Bottleneck {theirs or ''}".rstrip(),
        "In your own code write `from torch_bottleneck import Pipeline`. Under this command, "
        "`from bottleneck import Pipeline` works too.",
    )


EXAMINATIONS: dict[str, Callable[[], Finding]] = {
    "python": lambda: Finding("ok", f"{platform.python_version()} on {platform.system()}, torch-bottleneck {VERSION}"),
    "torch": examine_torch,
    "torchvision": examine_torchvision,
    "device": examine_device,
    "cores": examine_cores,
    "threads": examine_threads,
    "load": examine_load,
    "memory": examine_memory,
    "shared memory": examine_shared_memory,
    "open files": examine_open_files,
    "py-spy": examine_py_spy,
    "import name": examine_import_name,
}
"""Examinations by subject, in the order in which they are shown."""
