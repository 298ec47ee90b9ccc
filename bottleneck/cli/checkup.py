"""The examinations of `bottleneck doctor`: each looks at one thing and gives one finding."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from bottleneck._pydata.names import VERSION, pydata_version
from bottleneck.errors import BottleneckError, ExitStatus
from bottleneck.measure.cgroup import quota_cores as cgroup_quota_cores

LEAST_SHARED_MEMORY_BYTES = 1 << 30
LEAST_OPEN_FILES = 4096


@dataclass(frozen=True)
class Finding:
    """What one examination says."""

    status: Literal["ok", "warning", "problem"]
    """A problem makes measuring impossible; a warning hinders it or blurs its numbers."""
    subject: str
    message: str
    remedy: str = ""
    exit_status: ExitStatus = ExitStatus.COULD_NOT_MEASURE
    """What a problem means for who asked."""


def examine_environment() -> list[Finding]:
    """All findings about this machine and this environment, in a fixed order."""
    examinations: list[Callable[[], Finding]] = [
        examine_versions,
        examine_torch,
        examine_torchvision,
        examine_device,
        examine_cores,
        examine_shared_memory,
        examine_open_files,
        examine_py_spy,
        examine_ptrace,
        examine_import_name,
    ]
    return [examination() for examination in examinations]


def examine_target(target: str) -> list[Finding]:
    """Whether the pipeline of a target can be built and described."""
    try:
        from bottleneck.pipeline.checks import check
        from bottleneck.pipeline.target import build_pipeline

        pipeline = build_pipeline(target)
        check(pipeline)
    except BottleneckError as error:
        return [Finding("problem", "target", error.message, error.remedy, error.exit_status)]
    except ImportError as error:  # torch itself, which has a finding of its own
        return [Finding("problem", "target", f"not looked at: {error}")]
    findings = [Finding("ok", "target", repr(pipeline))]
    workers, cores = pipeline.loader_args.get("num_workers", 0), usable_cores()
    if workers > cores:
        findings.append(
            Finding(
                "warning",
                "workers",
                f"{workers} workers share {cores:g} cores",
                f"Try num_workers={int(cores)}.",
            )
        )
    return findings


def examine_versions() -> Finding:
    """Python, the platform and this package."""
    return Finding("ok", "python", f"{platform.python_version()} on {platform.system()}, torch-bottleneck {VERSION}")


def examine_torch() -> Finding:
    """Whether torch imports."""
    try:
        import torch
    except (ImportError, OSError) as error:
        return Finding("problem", "torch", f"cannot be imported: {_first_line(error)}", "pip install torch torchvision")
    return Finding("ok", "torch", str(torch.__version__))


def examine_torchvision() -> Finding:
    """Whether torchvision matches torch, by using an operator that is compiled against it."""
    try:
        import torch
        import torchvision
    except (ImportError, OSError, RuntimeError) as error:
        return _mismatched(error)
    try:
        kept = torchvision.ops.nms(torch.tensor([[0.0, 0.0, 1.0, 1.0]]), torch.tensor([1.0]), 0.5)
    except (RuntimeError, AttributeError, NotImplementedError) as error:
        return _mismatched(error)
    if kept.tolist() != [0]:
        return _mismatched(RuntimeError("torchvision.ops.nms gives a wrong result"))
    return Finding("ok", "torchvision", f"{torchvision.__version__}, matches torch")


def _mismatched(error: BaseException) -> Finding:
    return Finding(
        "warning",
        "torchvision",
        f"does not work with this torch: {_first_line(error)}",
        "Install the pair together from one place: pip install --force-reinstall torch torchvision",
    )


def examine_device() -> Finding:
    """The device that a diagnosis takes by itself."""
    try:
        from bottleneck.pipeline.transfer import resolve_device

        device = resolve_device(None)
    except (ImportError, OSError, RuntimeError) as error:
        return Finding("problem", "device", f"cannot be found out: {_first_line(error)}")
    if device.type == "cpu":
        return Finding("ok", "device", "cpu: no accelerator, the train step competes with the workers for cores")
    return Finding("ok", "device", str(device))


def examine_cores() -> Finding:
    """Cores of the machine against those that this process may use."""
    present, allowed, quota = os.cpu_count() or 1, allowed_cores(), cgroup_quota_cores()
    usable = usable_cores()
    if usable < present:
        why = "the affinity" if allowed <= (quota or allowed) else "the quota of its control group"
        return Finding(
            "warning",
            "cores",
            f"{usable:g} of {present} usable: {why} limits this process",
            "Choose num_workers after the usable cores, not after os.cpu_count().",
        )
    return Finding("ok", "cores", f"{present}, all usable")


def allowed_cores() -> int:
    """Cores that the scheduler may put this process on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def usable_cores() -> float:
    """Cores after affinity and quota."""
    return min(float(allowed_cores()), cgroup_quota_cores() or float("inf"))


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def examine_shared_memory() -> Finding:
    """The room that workers have for handing over batches."""
    try:
        state = os.statvfs("/dev/shm")
    except (OSError, AttributeError):
        return Finding("ok", "shared memory", "no /dev/shm on this system")
    size, free = state.f_blocks * state.f_frsize, state.f_bavail * state.f_frsize
    message = f"/dev/shm has {size / 2**30:.1f} GiB, {free / 2**30:.1f} GiB of it free"
    if free < LEAST_SHARED_MEMORY_BYTES:
        return Finding(
            "warning", "shared memory", message, "In Docker: --shm-size=8g or --ipc=host; else fewer workers."
        )
    return Finding("ok", "shared memory", message)


def examine_open_files() -> Finding:
    """The limit on open files: workers hand over tensors as file descriptors."""
    try:
        import resource
    except ImportError:
        return Finding("ok", "open files", "no limit on this system")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = soft == resource.RLIM_INFINITY
    message = "no limit" if unlimited else f"at most {soft}"
    if not unlimited and soft < LEAST_OPEN_FILES:
        most = "unlimited" if hard == resource.RLIM_INFINITY else str(hard)
        return Finding(
            "warning",
            "open files",
            message,
            f"ulimit -n {min(65536, hard) if most != 'unlimited' else 65536}",
        )
    return Finding("ok", "open files", message)


def examine_py_spy() -> Finding:
    """Whether py-spy is there, beside this Python or on the path."""
    beside = Path(sys.executable).parent / "py-spy"
    if not beside.exists() and shutil.which("py-spy") is None:
        return Finding("warning", "py-spy", "not found: no profiles of the workers", "pip install py-spy")
    version = _installed_version("py-spy")
    return Finding("ok", "py-spy", version or "found on the path")


def examine_ptrace(scope_file: Path = Path("/proc/sys/kernel/yama/ptrace_scope")) -> Finding:
    """Whether py-spy may look into the workers."""
    scope = _read(scope_file).strip()
    if scope in ("", "0") or (scope in ("1", "2") and hasattr(os, "geteuid") and os.geteuid() == 0):
        return Finding("ok", "ptrace", "processes of this user may be profiled")
    if scope == "1":
        return Finding("ok", "ptrace", "scope 1: workers may be profiled after they allow it themselves")
    return Finding("warning", "ptrace", f"scope {scope}: py-spy needs root", "sudo sysctl kernel.yama.ptrace_scope=1")


def examine_import_name() -> Finding:
    """Who owns the import name `bottleneck`, which pydata's Bottleneck has too."""
    import bottleneck

    theirs = _installed_version("Bottleneck")
    ours = getattr(bottleneck, "__getattr__", None)
    owned = getattr(ours, "__module__", None) == "bottleneck"
    if not owned:
        return Finding(
            "warning",
            "import name",
            f"`import bottleneck` gives pydata's Bottleneck {theirs or ''}".rstrip() + ", installed after this package",
            "In scripts `from bottleneck import Pipeline` fails; pip install --force-reinstall --no-deps "
            "torch-bottleneck (its functions stay available).",
        )
    if pydata_version() is not None:
        return Finding("ok", "import name", f"shared: the functions of pydata's Bottleneck {theirs} are forwarded")
    return Finding("ok", "import name", "`import bottleneck` gives this package")


def _installed_version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
