"""Parts of `benchmarks.gpu_evidence` that need no diagnosis: the machine, and what CUDA does where we depend on it."""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.machine import describe_machine, describe_revision
from bottleneck.measure.training import TrainingState

Note = Callable[..., None]
_IMAGES = (256, 3, 224, 224)
"""A batch of 154 MB."""


# --- helpers -----------------------------------------------------------------------------------------------


@functools.cache
def cycles_per_second() -> float:
    """Cycles of `torch.cuda._sleep` in a second, on a device that has left its idle clocks."""
    _spin(1_000_000_000)
    torch.cuda.synchronize()
    cycles = 200_000_000
    return cycles / device_seconds(lambda: _spin(cycles))


def _spin(cycles: int) -> None:
    torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]  # torch's own


def keep_busy(seconds: float) -> None:
    """Keep the current stream busy, and the host not at all."""
    _spin(int(seconds * cycles_per_second()))


def device_seconds(work: Callable[[], object]) -> float:
    """What the device takes for work, by CUDA's own events."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]  # torch's
    start.record()
    work()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) / 1000


@contextlib.contextmanager
def synchronising_forbidden() -> Iterator[None]:
    """Raise where torch waits for the device."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def descriptors() -> int:
    """Open file descriptors of this process."""
    return len(os.listdir("/proc/self/fd"))


# --- the machine -------------------------------------------------------------------------------------------


def machine(note: Note, _seconds: float, _folder: Path) -> None:
    """The machine, its copies and its clocks."""
    note("versions", **describe_machine(), code=describe_revision())
    if not torch.cuda.is_available():
        return
    before, threads = descriptors(), threading.active_count()
    torch.ones(1, device="cuda")
    note("begin_of_cuda", descriptors=descriptors() - before, threads=threading.active_count() - threads)
    _copies(note)
    _clock_after_idling(note)
    _utilisation(note)


def _copies(note: Note) -> None:
    for kind in ("pinned", "pageable"):
        batch = torch.empty(_IMAGES, pin_memory=kind == "pinned")
        batch.to("cuda")
        times = []
        for _ in range(5):
            torch.cuda.synchronize()
            begun_s = time.perf_counter()
            batch.to("cuda", non_blocking=True)
            returned_s = time.perf_counter() - begun_s
            torch.cuda.synchronize()
            times.append((time.perf_counter() - begun_s, returned_s))
        taken_s, returned_s = min(times)
        gigabytes = batch.nbytes / 1e9
        note(f"copy_{kind}", ms=taken_s * 1e3, host_ms=returned_s * 1e3, gb_per_s=gigabytes / taken_s)


def _clock_after_idling(note: Note) -> None:
    """How the same work speeds up after the device has idled: how long a warm-up has to be."""
    one = torch.rand(4096, 4096, device="cuda")
    device_seconds(lambda: one @ one)  # the library's own first time
    time.sleep(3)
    begun_s, series = time.perf_counter(), []
    while time.perf_counter() - begun_s < 1.5:
        series.append((time.perf_counter() - begun_s, 1e3 * device_seconds(lambda: one @ one)))
    last = sorted(ms for at, ms in series if at > 1.0)
    steady_ms = last[len(last) // 2]
    for until_s in (0.05, 0.1, 0.3, 0.6):
        early = sorted(ms for at, ms in series if until_s / 2 <= at < until_s)
        if early:
            note("product_after_idling", until_s=until_s, ms=early[len(early) // 2], steady_ms=steady_ms)


def _utilisation(note: Note) -> None:
    try:
        nvml: Any = importlib.import_module("pynvml")
    except ImportError:
        note("nvml", missing="pynvml is not installed")
        return
    nvml.nvmlInit()
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    seen_us, found = 0, []
    for _ in range(10):
        keep_busy(0.1)
        time.sleep(0.1)
        try:
            _, samples = nvml.nvmlDeviceGetSamples(handle, nvml.NVML_GPU_UTILIZATION_SAMPLES, seen_us)
            seen_us = samples[-1].timeStamp if samples else seen_us
            found.append(str(len(samples)))
        except nvml.NVMLError as error:
            found.append(str(error))
    note("nvml_samples_under_load", samples=found, rate=nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
    torch.cuda.synchronize()


# --- proofs ------------------------------------------------------------------------------------------------


def proofs(note: Note, _seconds: float, _folder: Path) -> None:
    """Run every proof; one that raises is a line of its own."""
    for proof in _PROOFS:
        name = proof.__name__.lstrip("_")
        try:
            note(name, **proof())
        except Exception as error:  # noqa: BLE001 - what goes wrong on a GPU is what is looked for
            note(name, holds=False, raised=f"{type(error).__name__}: {str(error).splitlines()[0][:300]}")


def _small_net() -> tuple[nn.Module, torch.Tensor]:
    net = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))
    return net.cuda(), torch.rand(8, 3, 64, 64, device="cuda")


def _channels_last_after_a_fused_step() -> dict[str, Any]:
    """A fused optimizer whose state has another layout than its weights."""
    net, images = _small_net()
    optimizer = torch.optim.AdamW(net.parameters(), fused=True)
    for _ in range(2):
        net(images).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    net.to(memory_format=torch.channels_last)
    net(images).sum().backward()
    try:
        optimizer.step()
    except RuntimeError as error:
        return {"step": str(error).splitlines()[0][:200]}
    return {"step": "runs"}


def _optimizer_in_backward() -> dict[str, Any]:
    net, images = _small_net()
    threads = set()

    def note_thread(_: torch.Tensor) -> None:
        threads.add(threading.get_ident())

    for parameter in net.parameters():
        parameter.register_post_accumulate_grad_hook(note_thread)  # type: ignore[no-untyped-call]  # torch's own
    net(images).sum().backward()
    return {"hooks_in_another_thread": threading.get_ident() not in threads}


def _cudnn_benchmark_once_plans_are_kept() -> dict[str, Any]:
    code = (
        "import sys, time, torch\n"
        "c = torch.nn.Conv2d(128, 256, 3, padding=1, stride=2).cuda(); x = torch.rand(64, 128, 57, 57, device='cuda')\n"
        "def run():\n"
        "    torch.cuda.synchronize(); t = time.perf_counter(); c(x).sum().backward(); torch.cuda.synchronize()\n"
        "    return 1e3 * (time.perf_counter() - t)\n"
        "if sys.argv[1] == 'late': [run() for _ in range(20)]\n"
        "torch.backends.cudnn.benchmark = sys.argv[1] != 'off'\n"
        "first = run(); rest = sorted(run() for _ in range(50))\n"
        "print(f'{first:.2f} {rest[25]:.3f}')\n"
    )
    found: dict[str, Any] = {}
    for when in ("off", "late", "first"):
        done = subprocess.run([sys.executable, "-c", code, when], capture_output=True, text=True, check=True)
        first_ms, later_ms = done.stdout.split()
        found |= {f"{when}_first_ms": float(first_ms), f"{when}_ms": float(later_ms)}
    return found


def _state_is_put_back_of_a_sharded_model() -> dict[str, Any]:
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard

    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29517", "RANK": "0", "WORLD_SIZE": "1"}
    dist.init_process_group("nccl", rank=0, world_size=1)
    try:
        net = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 10)).cuda()
        fully_shard(net)
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
        state = TrainingState({"the model": net, "the optimizer": optimizer}, torch.cuda.synchronize, lambda: 0.0)
        state.begin_round()
        before = [part.clone() for part in _shards(net)]
        for _ in range(3):
            net(torch.rand(8, 64, device="cuda")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        state.begin_round()
        same = all(torch.equal(a, b) for a, b in zip(before, _shards(net), strict=True))
        return {"put_back": same, "warning": str(state.warning()), "holds": same or state.warning() is not None}
    finally:
        dist.destroy_process_group()


def _shards(net: nn.Module) -> list[torch.Tensor]:
    sharded: list[Any] = [parameter.detach() for parameter in net.parameters()]
    return [parameter.to_local() for parameter in sharded]


def _a_graph_goes_on_with_the_state_put_back() -> dict[str, Any]:
    model = nn.Linear(64, 64).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True, capturable=True)
    batch = torch.rand(32, 64, device="cuda")

    def step() -> None:
        optimizer.zero_grad(set_to_none=False)
        model(batch).square().mean().backward()
        optimizer.step()

    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch's own
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    state = TrainingState({"the model": model, "the optimizer": optimizer}, torch.cuda.synchronize, lambda: 0.0)
    state.begin_round()
    kept = copy.deepcopy([model.weight.detach(), *optimizer.state[model.weight].values()])
    for _ in range(5):
        graph.replay()
    torch.cuda.synchronize()
    moved = not torch.equal(model.weight, kept[0])
    state.begin_round()
    now = (model.weight, *optimizer.state[model.weight].values())
    same = all(torch.equal(a, b) for a, b in zip(kept, now, strict=True))
    return {"holds": moved and same}


def _putting_back_takes_no_memory_of_the_device() -> dict[str, Any]:
    model = nn.Linear(8192, 8192).cuda()
    state = TrainingState({"the model": model}, torch.cuda.synchronize, lambda: 0.0)
    state.begin_round()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    begun_s = time.perf_counter()
    model.weight.data.add_(1)
    state.begin_round()
    seconds = time.perf_counter() - begun_s
    more = torch.cuda.max_memory_allocated() - before
    return {"more_bytes": more, "ms_for_268_mb": 1e3 * seconds, "holds": more == 0}


def _gradients_of_before_take_no_room_meanwhile() -> dict[str, Any]:
    from bottleneck.measure.keep.preserved import preserved

    model = nn.Linear(8192, 8192, bias=False).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    images = torch.rand(4, 8192, device="cuda")
    model(images).sum().backward()
    kept = model.weight.grad.clone().cpu() if model.weight.grad is not None else None
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    data = torch.utils.data.TensorDataset(torch.rand(8, 4))
    with preserved(
        model=model, optimizer=optimizer, train_step=None, loader=torch.utils.data.DataLoader(data), dataset=data,
        device=torch.device("cuda", 0), others={},
    ):  # fmt: skip
        optimizer.zero_grad()
        model(images).sum().backward()
        optimizer.step()
        torch.cuda.synchronize()
        meanwhile = torch.cuda.memory_allocated()
    back = kept is not None and model.weight.grad is not None and torch.equal(model.weight.grad.cpu(), kept)
    return {"more_bytes": meanwhile - before, "gradient_bytes": 8192 * 8192 * 4, "put_back": back, "holds": back}


def _capture(mode: str) -> dict[str, Any]:
    """Capture while a thread pins memory, as the loader's does: in a process of its own, which it may poison."""
    code = (
        "import sys, threading, torch\n"
        "net = torch.nn.Linear(64, 64).cuda(); x = torch.rand(8, 64, device='cuda'); stop = []\n"
        "def pin():\n"
        "    n = 1\n"
        "    while not stop: n = n % 64 + 1; torch.empty(n << 20, pin_memory=True)\n"
        "side = torch.cuda.Stream()\n"
        "with torch.cuda.stream(side): [net(x) for _ in range(3)]\n"
        "torch.cuda.synchronize(); t = threading.Thread(target=pin, daemon=True); t.start()\n"
        "graph = torch.cuda.CUDAGraph()\n"
        "try:\n"
        "    for _ in range(20):\n"
        "        graph = torch.cuda.CUDAGraph()\n"
        "        with torch.cuda.graph(graph, capture_error_mode=sys.argv[1]): net(x)\n"
        "    print('captured')\n"
        "except Exception as error: print('failed:', str(error).splitlines()[0])\n"
        "stop.append(1); t.join(5)\n"
        "try: torch.ones(1, device='cuda').item(); print('device works')\n"
        "except Exception as error: print('device poisoned:', str(error).splitlines()[0])\n"
    )
    done = subprocess.run([sys.executable, "-c", code, mode], capture_output=True, text=True, check=False, timeout=60)
    return {"found": "; ".join(done.stdout.split("\n"))[:300] or done.stderr[-300:]}


def _capture_global_while_memory_is_pinned() -> dict[str, Any]:
    return _capture("global")


def _capture_thread_local_while_memory_is_pinned() -> dict[str, Any]:
    return _capture("thread_local")


_PROOFS: tuple[Callable[[], dict[str, Any]], ...] = (
    _a_graph_goes_on_with_the_state_put_back,
    _putting_back_takes_no_memory_of_the_device,
    _gradients_of_before_take_no_room_meanwhile,
    _channels_last_after_a_fused_step,
    _optimizer_in_backward,
    _state_is_put_back_of_a_sharded_model,
    _capture_global_while_memory_is_pinned,
    _capture_thread_local_while_memory_is_pinned,
    _cudnn_benchmark_once_plans_are_kept,
)

PARTS = {"machine": machine, "proofs": proofs}
