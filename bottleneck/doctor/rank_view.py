"""What one rank of a launched job sees of its machine, as text that travels."""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from bottleneck.doctor.finding import Finding
from bottleneck.measure.system.cores import allowed_cpus, usable_cores
from bottleneck.results.format import number, size

_SYS = Path("/sys")


@dataclass(frozen=True)
class RankView:
    """What one rank sees."""

    rank: int
    local_rank: int
    host: str
    cpus: tuple[int, ...]
    """Those that it may run on; empty where that is unknown."""
    usable_cores: float
    numa_nodes: tuple[int, ...]
    """Of its cores; empty where that is unknown."""
    memory_bytes: int
    free_memory_bytes: int
    shm_bytes: int | None
    shm_free_bytes: int | None
    devices: tuple[str, ...]
    device_numa_node: int | None
    """Of the device with its local rank; None where that is unknown, or the machine has one node."""
    torch: str
    python: str
    omp_num_threads: str
    problems: tuple[str, ...]
    """What makes measuring impossible there."""

    def to_text(self) -> str:
        """Text that another rank reads."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def of_text(cls, text: bytes) -> RankView:
        """What another rank wrote.

        Raises:
            ValueError: It is of another version, and lacks something.
        """
        return msgspec.json.decode(text, type=cls)

    @property
    def line(self) -> str:
        """All of it in a line."""
        cores = f"{number(self.usable_cores, 0 if self.usable_cores.is_integer() else 1)} cores ({spans(self.cpus)})"
        nodes = f", NUMA {spans(self.numa_nodes)}" if self.numa_nodes else ""
        shm = "no /dev/shm" if self.shm_bytes is None else f"/dev/shm {size(self.shm_free_bytes)} free"
        devices = self.devices[self.local_rank] if self.local_rank < len(self.devices) else "no device of its own"
        memory = f"{size(self.free_memory_bytes)} free of {size(self.memory_bytes)}"
        return f"{self.host}: {cores}{nodes}, {memory}, {shm}, {devices}"


def look_around(rank: int, local_rank: int, findings: Iterable[Finding] = (), root: Path = _SYS) -> RankView:
    """What this process sees.

    Args:
        rank: Of this process.
        local_rank: Its number on this machine.
        findings: Of the examinations that it made.
        root: Where the kernel describes the machine.
    """
    from bottleneck.measure.system.environment import free_memory_bytes, memory_bytes, shm_bytes, shm_free_bytes

    cpus = tuple(allowed_cpus() or ())
    devices, addresses, version = _devices()
    address = addresses[local_rank] if local_rank < len(addresses) else ""
    return RankView(
        rank=rank, local_rank=local_rank, host=socket.gethostname(), cpus=cpus, usable_cores=usable_cores(),
        numa_nodes=numa_nodes(cpus, root), memory_bytes=memory_bytes(), free_memory_bytes=free_memory_bytes(),
        shm_bytes=shm_bytes(), shm_free_bytes=shm_free_bytes(), devices=devices,
        device_numa_node=numa_node_of(address, root), torch=version, python=platform.python_version(),
        omp_num_threads=os.environ.get("OMP_NUM_THREADS", "not set"),
        problems=tuple(f"{found.subject}: {found.message}" for found in findings if found.status == "problem"),
    )  # fmt: skip


def _devices() -> tuple[tuple[str, ...], tuple[str, ...], str]:
    """The names of the CUDA devices, their addresses on the bus, and the version of torch."""
    try:
        import torch

        all_of = [torch.cuda.get_device_properties(at) for at in range(torch.cuda.device_count())]
    except (ImportError, OSError, RuntimeError):
        return (), (), "cannot be imported"
    names = tuple(f"cuda:{at} {one.name}" for at, one in enumerate(all_of))
    return names, tuple(map(_bus_address, all_of)), str(torch.__version__)


def _bus_address(properties: object) -> str:
    parts = [getattr(properties, f"pci_{name}_id", None) for name in ("domain", "bus", "device")]
    known = [part for part in parts if isinstance(part, int)]  # older versions of torch do not tell
    return "{:04x}:{:02x}:{:02x}.0".format(*known) if len(known) == len(parts) else ""


def numa_nodes(cpus: Sequence[int], root: Path = _SYS) -> tuple[int, ...]:
    """The NUMA nodes of some cores; empty where the system does not tell."""
    found = set()
    for folder in (root / "devices/system/node").glob("node[0-9]*"):
        here = {int(core.name[3:]) for core in folder.glob("cpu[0-9]*")}
        if here & set(cpus):
            found.add(int(folder.name[4:]))
    return tuple(sorted(found))


def numa_node_of(address: str, root: Path = _SYS) -> int | None:
    """The NUMA node of a device on the bus; None where the system does not tell."""
    try:
        node = int((root / "bus/pci/devices" / address / "numa_node").read_text())
    except (OSError, ValueError):
        return None
    return node if address and node >= 0 else None


def spans(numbers: Sequence[int]) -> str:
    """Numbers in short: `0-3, 8`; a word where there are none."""
    parts: list[list[int]] = []
    for one in sorted(set(numbers)):
        if parts and one == parts[-1][1] + 1:
            parts[-1][1] = one
        else:
            parts.append([one, one])
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in parts) or "unknown"


def differences(views: Sequence[RankView]) -> Mapping[str, Mapping[str, tuple[int, ...]]]:
    """What is not the same on all ranks: for each subject its values, and the ranks that have each."""
    found: dict[str, dict[str, tuple[int, ...]]] = {}
    for view in views:
        for subject, value in _comparable(view).items():
            held = found.setdefault(subject, {})
            held[value] = (*held.get(value, ()), view.rank)
    return {subject: values for subject, values in found.items() if len(values) > 1}


def _comparable(view: RankView) -> dict[str, str]:
    """What ranks of one job had better have alike; which cores and which device they have has to differ."""
    own = view.devices[view.local_rank].partition(" ")[2] if view.local_rank < len(view.devices) else "none"
    return {
        "usable cores": f"{view.usable_cores:g}",
        "memory": size(view.memory_bytes),
        "/dev/shm": "none" if view.shm_bytes is None else size(view.shm_bytes),
        "devices": str(len(view.devices)),
        "device": own,
        "torch": view.torch,
        "Python": view.python,
        "OMP_NUM_THREADS": view.omp_num_threads,
    }
