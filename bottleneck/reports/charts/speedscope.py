"""A profile as a file for speedscope, a viewer of profiles in the browser."""

from __future__ import annotations

import json
from typing import Any

from bottleneck.reports import sanitize
from bottleneck.results.stacks import Frame, StackProfile, WorkerStacks

SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def render_speedscope(profile: StackProfile) -> str:
    """The profile as JSON for speedscope, one sampled profile a worker; its unit is the second."""
    frames: dict[Frame, int] = {}
    profiles = [_worker(profile, worker, frames) for worker in profile.workers]
    document = {
        "$schema": SCHEMA,
        "shared": {"frames": [_frame(frame) for frame in frames]},
        "profiles": profiles,
        "name": "bottleneck",
        "exporter": "torch-bottleneck",
        "activeProfileIndex": 0,
    }
    return json.dumps(document, ensure_ascii=True) + "\n"


def _frame(frame: Frame) -> dict[str, Any]:
    named: dict[str, Any] = {"name": sanitize.public(frame.function), "file": sanitize.public(frame.file)}
    return named if frame.line is None else {**named, "line": frame.line}


def _worker(profile: StackProfile, worker: WorkerStacks, frames: dict[Frame, int]) -> dict[str, Any]:
    seen = [stack for stack in worker.stacks if stack.samples > 0]
    weights = [stack.samples / profile.rate_hz for stack in seen]
    return {
        "type": "sampled",
        "name": f"worker {worker.worker}",
        "unit": "seconds",
        "startValue": 0,
        "endValue": sum(weights),
        "samples": [[frames.setdefault(frame, len(frames)) for frame in stack.frames] for stack in seen],
        "weights": weights,
    }
