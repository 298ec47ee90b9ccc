"""Let a profiler look into this process where the kernel restricts that to ancestors (Linux: Yama, scope 1).

Without imports of ours: `doctor` runs this file in a process of its own, where torch may be missing.
"""

from __future__ import annotations

import ctypes
import sys

_PR_SET_PTRACER = 0x59616D61
_PR_SET_PTRACER_ANY = ctypes.c_ulong(-1)


def allow_tracing() -> bool:
    """Let any process of this user look into this one; return whether the kernel knows of such a permission."""
    return _set_tracer(_PR_SET_PTRACER_ANY)


def forbid_tracing() -> bool:
    """Take the permission back."""
    return _set_tracer(ctypes.c_ulong(0))


def _set_tracer(tracer: ctypes.c_ulong) -> bool:
    if sys.platform != "linux":
        return False
    try:
        none = ctypes.c_ulong(0)
        return bool(ctypes.CDLL(None).prctl(_PR_SET_PTRACER, tracer, none, none, none) == 0)
    except (OSError, AttributeError):  # a C library without it
        return False
