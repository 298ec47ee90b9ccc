"""What PyTorch had not before 2.6."""

import pytest

from bottleneck.job.loader_args import loader_argument_names

NEEDS_IN_ORDER = pytest.mark.skipif("in_order" not in loader_argument_names(), reason="this torch has no in_order")


def where_there(names):
    """Names of changes as parameters of a test."""
    return [pytest.param(name, marks=NEEDS_IN_ORDER) if name == "in_order" else name for name in names]
