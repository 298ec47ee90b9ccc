"""The package `bottleneck` under a name that is this distribution's alone.

Where pydata's Bottleneck is installed, `import bottleneck` gives that one; `from torch_bottleneck import Pipeline`
works in every environment. The modules are those of the folder `bottleneck/` next to this one.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import bottleneck

_MODULES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "bottleneck")
if _MODULES not in bottleneck.__path__:  # pydata's is installed in another place, which comes first in sys.path
    bottleneck.__path__.append(_MODULES)

from bottleneck._pydata import PUBLIC_NAMES  # noqa: E402 - found only from here on
from bottleneck._pydata import VERSION as __version__  # noqa: E402, F401

if TYPE_CHECKING:
    from bottleneck import *  # noqa: F403
else:
    from bottleneck._pydata import public_name as __getattr__  # noqa: F401

    __all__ = list(PUBLIC_NAMES)


def __dir__() -> list[str]:
    return sorted({*globals(), *PUBLIC_NAMES})
