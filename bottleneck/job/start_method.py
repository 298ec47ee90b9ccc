"""How worker processes start: `fork`, `forkserver` or `spawn`. Needs no torch."""

from __future__ import annotations

import multiprocessing
from typing import Any


def default_start_method() -> str:
    """How they start where a loader does not say."""
    # Asking for it without allow_none would fix it for the user's own code.
    return multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]


def start_method_of(loader: Any) -> str:
    """How those of a DataLoader start."""
    context = loader.multiprocessing_context
    chosen = context.get_start_method(allow_none=True) if context is not None else None
    return str(chosen or default_start_method())
