"""Parts of `benchmarks.gpu_evidence` that look at the device: its copies, its memory, a sharded model afterwards."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.data import TensorDataset

import bottleneck
from benchmarks.gpu_facts import MIN_DIAGNOSIS_S, Note, Place, keep_result
from benchmarks.gpu_host import Host
from benchmarks.gpu_truth import Marks

BATCHES = {"154 MB": (256, 3, 224, 224), "38 MB": (64, 3, 224, 224)}
_COPIES = 5
_TUNING_S = 36.0
_CHANGES = ("cuda_graphs", "channels_last", "fused_optimizer")


class Machine:
    """Copies of a batch to the device, from both kinds of memory.

    Args:
        place: Folder and device.
    """

    def __init__(self, place: Place) -> None:
        self._device, self._marks, self._host = torch.device(place.device), Marks(torch.device(place.device)), Host()
        torch.ones(1, device=place.device)

    def run(self, note: Note, limit_s: float) -> None:
        """Note the card, and what a copy takes the device and the host."""
        note("host", host_ms=self._host.ms_a_photograph())
        if self._device.type == "cuda":
            card = torch.cuda.get_device_properties(self._device)
            note("card", name=card.name, capability=[card.major, card.minor], bytes=card.total_memory)
        for size, shape in BATCHES.items():
            for kind in ("pinned", "pageable"):
                batch = torch.empty(shape, pin_memory=kind == "pinned" and self._device.type == "cuda")
                note(f"copy_{kind}", batch=size, **self._time(batch))

    def _time(self, batch: torch.Tensor) -> dict[str, float]:
        taken = []
        for _ in range(_COPIES):
            first, began_s = self._marks.mark(), time.perf_counter()
            batch.to(self._device, non_blocking=True, copy=True)
            returned_s, last = time.perf_counter() - began_s, self._marks.mark()
            self._marks.wait()
            taken.append((self._marks.seconds(first, last), returned_s))
        seconds, returned_s = min(taken)
        return {"ms": 1e3 * seconds, "returned_ms": 1e3 * returned_s, "gb_per_s": batch.nbytes / 1e9 / seconds}


class Memory:
    """Memory of the device after a tuning, and a sharded model after a diagnosis.

    Args:
        place: Folder and device.
    """

    def __init__(self, place: Place) -> None:
        self._place, self._device = place, torch.device(place.device)
        torch.ones(1, device=place.device)

    def run(self, note: Note, limit_s: float) -> None:
        """Tune with the changes that once kept memory, then diagnose a model under FSDP2."""
        fields = _small_job(self._device)
        before = self._allocated(clear=True)
        try:
            trials = self._tune(fields)
        except bottleneck.BottleneckError as error:
            note("kept", failed=str(error))
        else:
            kept, cleared = (self._allocated(clear=clear) - before for clear in (False, True))
            note("kept", trials=trials, kept_bytes=kept, kept_bytes_once_cleared=cleared)
        note("sharded", **_sharded(self._device))

    def _tune(self, fields: dict[str, Any]) -> dict[str, str]:
        """Tune the job, and return what came of each change."""
        tuning = bottleneck.tune(fields, try_=_CHANGES, budget=_TUNING_S)
        keep_result(self._place.folder, "memory", tuning.to_json())
        return {trial.setting: trial.outcome for trial in tuning.trials}

    def _allocated(self, *, clear: bool) -> int:
        gc.collect()
        if self._device.type != "cuda":
            return 0
        torch.cuda.synchronize()
        if clear:  # workspaces of cuBLAS, kept for each handle and stream: no tensor's
            torch._C._cuda_clearCublasWorkspaces()
        return torch.cuda.memory_allocated()


def _small_job(device: torch.device) -> dict[str, Any]:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(64, 64, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 512),
        nn.ReLU(),
        nn.Linear(512, 10),
    ).to(device)
    return {
        "dataset": TensorDataset(torch.rand(4096, 3, 16, 16), torch.randint(0, 10, (4096,))),
        "model": model,
        "loss_fn": nn.CrossEntropyLoss(),
        "optimizer": torch.optim.AdamW(model.parameters()),
        "device": device,
        "batch_size": 32,
        "num_workers": 0,
        "drop_last": True,
    }


def _sharded(device: torch.device) -> dict[str, Any]:
    """Diagnose a model under FSDP2, alone in its group, and compare its shards with those of before."""
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard

    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29517", "RANK": "0", "WORLD_SIZE": "1"}
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        fields = _small_job(device)
        fully_shard(fields["model"])
        fields["optimizer"] = torch.optim.AdamW(fields["model"].parameters(), lr=0.1)
        before = [shard.clone() for shard in _shards(fields["model"])]
        result = bottleneck.diagnose(fields, quick=True, budget=MIN_DIAGNOSIS_S)
        same = all(map(torch.equal, before, _shards(fields["model"])))
        return {"put_back": same, "state": result.verdict.state, "warnings": [one.id for one in result.warnings]}
    finally:
        dist.destroy_process_group()


def _shards(model: nn.Module) -> list[torch.Tensor]:
    sharded: list[Any] = [parameter.detach() for parameter in model.parameters()]
    return [parameter.to_local() for parameter in sharded]


PARTS: dict[str, Callable[[Place], Any]] = {"machine": Machine, "memory": Memory}
