"""How many processes a job has: known where `torch.distributed` is, and without importing it."""

from __future__ import annotations

import sys
from typing import Any


def world_size() -> int:
    """How many ranks share the work of this process; 1 where it is alone."""
    distributed: Any = sys.modules.get("torch.distributed")
    joined = distributed is not None and distributed.is_available() and distributed.is_initialized()
    return int(distributed.get_world_size()) if joined else 1
