"""Examination of the device: which one a diagnosis takes, whether it works, and why one that is there is not used."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

from bottleneck.doctor.finding import Finding, first_line
from bottleneck.results.format import size

_OURS_BYTES = 2 << 30
"""What the first use of a device takes by itself, generously: less says nothing of others on it."""


def examine_device(root: Path = Path("/")) -> Finding:
    """The device that a diagnosis takes by itself, tried with one operation.

    Args:
        root: Where the system's files are.
    """
    try:
        import torch

        from bottleneck.job.transfer import resolve_device

        device = resolve_device(None)
    except (ImportError, OSError, RuntimeError) as error:
        return Finding("problem", "device", f"cannot be found out: {first_line(error)}")
    if device.type == "cpu":
        return _explain_missing(torch, root)
    try:
        if (torch.ones(2, device=device) * 2).sum().item() != 4:
            raise RuntimeError("1 + 1 is not 2 there")  # noqa: TRY301 - reported as any other failure
    except RuntimeError as error:
        return Finding(
            "problem",
            "device",
            f"{device} is there, but does not work: {first_line(error)}",
            "Install a build of torch that is made for this device and driver, or write --device cpu.",
        )
    return _describe(torch, device)


def _describe(torch: Any, device: Any) -> Finding:
    if device.type != "cuda":
        return Finding("ok", "device", f"{device}, works")
    free, total = torch.cuda.mem_get_info(device)
    toolkit = f"CUDA {torch.version.cuda}" if torch.version.cuda else f"ROCm {torch.version.hip}"
    message = f"{device}, {torch.cuda.get_device_name(device)}, {toolkit}, {size(free)} of {size(total)} free"
    if total - free > max(_OURS_BYTES, 0.1 * total):
        return Finding(
            "warning",
            "device",
            f"{message}: another process uses it",
            "nvidia-smi shows who; a shared device makes every time unsteady.",
        )
    return Finding("ok", "device", message)


def _explain_missing(torch: Any, root: Path) -> Finding:
    driver = nvidia_driver(root)
    if driver is None:
        return Finding("ok", "device", "cpu: no accelerator, the train step competes with the workers for cores")
    message = f"cpu, although an NVIDIA driver ({driver}) is here"
    if torch.version.cuda is None:
        return Finding(
            "warning",
            "device",
            f"{message}: this torch {torch.__version__} is built without CUDA",
            "Install a CUDA build of torch and torchvision; PyTorch's 'Get started' page has the command.",
        )
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and visible.strip() in ("", "-1", "NoDevFiles"):
        return Finding(
            "warning", "device", f"{message}: CUDA_VISIBLE_DEVICES={visible!r} hides it", "unset CUDA_VISIBLE_DEVICES"
        )
    if not any((root / "dev").glob("nvidia[0-9]*")):
        return Finding(
            "warning",
            "device",
            f"{message}: this process sees no /dev/nvidia0",
            "In Docker: --gpus all; on a cluster ask for a GPU when the job is started.",
        )
    return Finding("warning", "device", f"{message}: {_reason(torch)}", "Update the driver, or install an older build.")


def _reason(torch: Any) -> str:
    try:
        torch.cuda.init()
    except (RuntimeError, AssertionError) as error:
        return first_line(error)
    return f"CUDA {torch.version.cuda} finds no device"


def nvidia_driver(root: Path = Path("/")) -> str | None:
    """The version of NVIDIA's driver, 'version unknown' where only its tool is there; None without one."""
    try:
        text = (root / "proc/driver/nvidia/version").read_text(errors="replace")
    except OSError:
        return "version unknown" if shutil.which("nvidia-smi") else None
    found = re.search(r"\b\d+\.\d+(?:\.\d+)?\b", text)
    return found.group(0) if found else "version unknown"
