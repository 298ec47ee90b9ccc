"""A folder whose files are on a disk, and can be dropped from memory, for tests of reads from disk and memory."""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bottleneck.measure.cold import drop_files, find_resident, sample_pages
from bottleneck.measure.evidence.io import mount_of, read_mounts


@pytest.fixture
def disk_folder() -> Iterator[Path]:
    """A temporary folder on a file system whose files can leave memory; skips if there is none."""
    if not hasattr(os, "RWF_NOWAIT"):
        pytest.skip("this system cannot drop single files from memory")
    for parent in ("/var/tmp", tempfile.gettempdir(), str(Path.home()), str(Path.cwd())):
        mount = mount_of(parent, read_mounts())
        if mount is None or mount.kind == "tmpfs" or not mount.counts_reads:
            continue
        try:
            folder = tempfile.TemporaryDirectory(prefix="bottleneck-", dir=parent)
        except OSError:
            continue
        with folder as path:
            if _lets_go(Path(path)):
                yield Path(path)
                return
    pytest.skip("there is no writable folder whose files can be dropped from memory")


def _lets_go(folder: Path) -> bool:
    path = folder / "trial"
    with path.open("wb") as file:
        file.write(os.urandom(65_536))
        file.flush()
        os.fsync(file.fileno())
    for _ in range(20):  # a page that somebody has just hold of stays for a moment
        drop_files([path])
        if find_resident(sample_pages({str(path): 65_536}, random.Random(0))) == []:
            return True
        time.sleep(0.1)
    return False
