"""Examinations of what is installed: versions that fit, and who owns the import name."""

from __future__ import annotations

import multiprocessing
import platform
import sys

from bottleneck._pydata.names import VERSION, installed_version, is_ours
from bottleneck.doctor.finding import Finding, first_line
from bottleneck.job.start_method import default_start_method


def examine_versions() -> Finding:
    """Python, the platform and this package."""
    return Finding("ok", "python", f"{platform.python_version()} on {platform.system()}, torch-bottleneck {VERSION}")


def examine_torch() -> Finding:
    """Whether torch imports."""
    try:
        import torch
    except (ImportError, OSError) as error:
        return Finding("problem", "torch", f"cannot be imported: {first_line(error)}", "pip install torch torchvision")
    return Finding("ok", "torch", str(torch.__version__))


def examine_torchvision() -> Finding:
    """Whether torchvision matches torch, by using an operator that is compiled against it."""
    try:
        import torch
        import torchvision
    except (ImportError, OSError, RuntimeError) as error:
        return _mismatched(error)
    try:
        kept = torchvision.ops.nms(torch.tensor([[0.0, 0.0, 1.0, 1.0]]), torch.tensor([1.0]), 0.5)
    except (RuntimeError, AttributeError, NotImplementedError) as error:
        return _mismatched(error)
    if kept.tolist() != [0]:
        return _mismatched(RuntimeError("torchvision.ops.nms gives a wrong result"))
    return Finding("ok", "torchvision", f"{torchvision.__version__}, matches torch")


def _mismatched(error: BaseException) -> Finding:
    return Finding(
        "warning",
        "torchvision",
        f"does not work with this torch: {first_line(error)}",
        "Install the pair together from one place: pip install --force-reinstall torch torchvision",
    )


def examine_start_method() -> Finding:
    """How worker processes start, which decides whether a dataset has to be picklable."""
    method = default_start_method()
    if multiprocessing.get_start_method(allow_none=True) is not None:
        source = "set in this process"
    elif sys.platform in ("win32", "darwin"):
        source = "Python's default on this system"
    else:
        source = "Python's default " + ("since 3.14" if sys.version_info >= (3, 14) else "before 3.14")
    copied = "workers inherit the dataset" if method == "fork" else "the dataset is pickled for every worker"
    return Finding("ok", "start method", f"{method}, {source}: {copied}")


def examine_import_name() -> Finding:
    """Who owns the import name `bottleneck`, which pydata's Bottleneck has too."""
    import bottleneck

    theirs = installed_version("Bottleneck")
    if is_ours(bottleneck):
        return _name_is_ours(theirs)
    if getattr(bottleneck, "__file__", None) is None:
        return Finding(
            "warning",
            "import name",
            "`import bottleneck` finds a folder without an __init__.py, so that `import pandas` fails",
            _reinstall("torch-bottleneck" if theirs is None else "Bottleneck"),
        )
    return Finding(
        "ok",
        "import name",
        f"`import bottleneck` gives pydata's Bottleneck {theirs or ''}".rstrip(),
        "In code of your own write `from torch_bottleneck import Pipeline`. Under this command, "
        "`from bottleneck import Pipeline` works too.",
    )


def _name_is_ours(theirs: str | None) -> Finding:
    if theirs is None:
        return Finding("ok", "import name", "`import bottleneck` gives this package, and so does torch_bottleneck")
    return Finding(
        "warning",
        "import name",
        f"`import bottleneck` gives this package, although pydata's Bottleneck {theirs} is installed: "
        "pandas and others compute without it",
        _reinstall("Bottleneck"),
    )


def _reinstall(distribution: str) -> str:
    return f"pip install --force-reinstall --no-deps {distribution}"
