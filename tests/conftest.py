"""Applies to every test: it leaves nothing behind. Fixtures of several folders."""

from __future__ import annotations

import gc
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.leaks import take_state, wait_for_leaks

HERE = Path(__file__).parent
UNTIMED = (
    "cli/test_demo.py", "cli/test_termination.py", "examples/test_examples.py",
    "examples/test_readme.py",
    "frameworks_training/test_ranks_of_frameworks.py", "loader/test_closing.py", "loader/test_loader_clone.py",
    "loader/test_switching.py", "measure/test_large_batches.py",
    "measure/test_session.py", "measure/test_session_failures.py", "measure/test_trace_pass.py",
    "ranks/test_kinds_of_ranks.py", "script/test_run.py", "test_leaks.py", "test_left_as_found.py",
    "tuning/test_real_variants.py",
)  # fmt: skip
"""Files and folders whose integration tests run in pairs: they judge no times. So do tests that are marked."""
SLEEPING = ("kinds", "tuning/test_tune_jobs.py")
"""Those that run three at a time: they judge jobs that sleep instead of computing. So do tests that are marked."""


def pytest_configure(config: pytest.Config) -> None:
    # A shell that starts its jobs in the background lets them ignore SIGINT, and so all their children.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line("markers", "leaks(reason): leaves something behind on purpose, for this reason")


def _is_of_frameworks(path: Path) -> bool:
    return path.is_relative_to(HERE) and path.relative_to(HERE).as_posix().startswith("frameworks")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no test that is not to run: what it imports takes seconds, and makes each fork slower."""
    if not collection_path.match("test_*.py"):
        return None
    marks = _marks_in(collection_path)
    for mark in ("environments", "frameworks", "gpu", "integration"):
        excluded = f"not {mark}" in config.option.markexpr
        if not excluded and mark in config.option.markexpr and mark not in marks:
            return True
    return True if "not frameworks" in config.option.markexpr and _is_of_frameworks(collection_path) else None


def _marks_in(path: Path) -> set[str]:
    """The marks that tests of a file may have."""
    return {*re.findall(r"mark\.(\w+)", path.read_text(encoding="utf-8")), *(["frameworks"] * _is_of_frameworks(path))}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests in tests/frameworks*, which have a separate target: `make test-frameworks`."""
    for item in items:
        if _is_of_frameworks(item.path):
            item.add_marker("frameworks")
        for mark, paths in (("untimed", UNTIMED), ("sleeps", SLEEPING)):
            if any(item.path.is_relative_to(HERE / path) for path in paths):
                item.add_marker(mark)


def pytest_collection_finish() -> None:
    """Nothing that was imported is garbage; to look through it again and again takes a third of the tests' time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def nothing_is_compiled() -> None:
    """Forget what other tests of this process have compiled."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)
    if counters is not None:
        counters.clear()


@pytest.fixture(autouse=True)
def nothing_leaks(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test that leaves a process, thread, descriptor, patch or changed setting behind."""
    marker = request.node.get_closest_marker("leaks")
    if marker is not None:
        if not marker.args or not str(marker.args[0]).strip():
            pytest.fail("The marker needs a reason: @pytest.mark.leaks('why it has to').", pytrace=False)
        yield
        return
    before = take_state()
    yield
    found = wait_for_leaks(before)
    if found:
        pytest.fail("This test leaves something behind:\n  " + "\n  ".join(found), pytrace=False)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working directory; modules imported from it are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture
def no_recipes(monkeypatch: pytest.MonkeyPatch) -> None:
    """No recipe is registered but the built-in ones; what the test registers is forgotten."""
    monkeypatch.setattr("bottleneck.job.recipes._registered", [])
