"""Pages are chosen by the byte, and dropping is looked at instead of believed."""

import os
import time
from collections import Counter

import pytest

from bottleneck.measure.cold.page_cache import DataFile, Page, can_drop, drop, find_resident, sample_pages

needs_dropping = pytest.mark.skipif(not can_drop(), reason="this system cannot drop single files from memory")


def test_pages_are_chosen_by_the_byte():
    files = [DataFile("small", 4096), DataFile("large", 99 * 4096)]
    pages = sample_pages(files, seed=1, pages=2000)
    counted = Counter(page.path for page in pages)
    assert 5 < counted["small"] < 50
    assert all(page.offset % 4096 == 0 and 0 <= page.offset < 99 * 4096 for page in pages)
    assert {page.offset for page in pages if page.path == "small"} == {0}
    assert sample_pages(files, seed=1, pages=5) == sample_pages(files, seed=1, pages=5)
    assert sample_pages([], seed=1) == []


@pytest.mark.integration
@needs_dropping
def test_a_dropped_file_is_out_of_memory_and_a_read_one_is_in_it(disk_folder):
    path = disk_folder / "file"
    with path.open("wb") as file:
        file.write(os.urandom(1 << 20))
        file.flush()
        os.fsync(file.fileno())
    files = [DataFile(str(path), 1 << 20)]
    pages = sample_pages(files, seed=0)
    assert find_resident(pages) == pages
    deadline = time.monotonic() + 10
    while True:  # a page that somebody has just hold of stays
        drop(files)
        # Looking brings in nothing that counts afterwards.
        found = find_resident([*pages, *pages])
        if not found or time.monotonic() > deadline:
            break
    assert found == []
    path.read_bytes()
    assert find_resident(pages) == pages


@needs_dropping
def test_a_file_in_shared_memory_is_not_told_to_be_dropped(tmp_path):
    if not os.access("/dev/shm", os.W_OK):
        pytest.skip("there is no shared memory here")
    path = f"/dev/shm/page-cache-{os.getpid()}"
    try:
        with open(path, "wb") as file:
            file.write(bytes(100_000))
        files = [DataFile(path, 100_000)]
        drop(files)
        found = find_resident(sample_pages(files, seed=0))
        assert found is None or len(found) == 64
    finally:
        os.unlink(path)


def test_a_file_that_is_gone_is_left_out():
    drop([DataFile("/nowhere/at/all", 10)])
    assert find_resident([Page("/nowhere/at/all", 0)]) == []
