"""From the samples that workers examined to evidence: medians, shares, and what comes out the same."""

import pytest

from bottleneck.loader import modes
from bottleneck.loader.examining.examine import ITEM, Examination, ItemSeen, Output
from bottleneck.loader.examining.touches import READ, Touched
from bottleneck.loader.observing.meter import Spent
from bottleneck.loader.observing.observation import Observation
from bottleneck.loader.observing.outputs import SampleData
from bottleneck.measure.evidence.touched import examine, find_amplified, find_distinct, find_repeated
from tests.measure.ladders import Workers

OBSERVED = Observation(workers=1, batches=1, samples=10, stages={"load": Spent(0.1, 0.1)})


def item(touched=None, *, kept=1000, read=None, samples=1, frames=0, again=True, again_s=0.01):
    outputs = [Output("load", kept, frames, 0.01, again, again_s), Output(ITEM, 4 * kept, frames, 0.02, False, 0.02)]
    found = {} if touched is None else {("parquet", "load"): touched}
    found |= {} if read is None else {(READ, "load"): Touched(nbytes=read)}
    return ItemSeen(samples, found, outputs)


def group(**changes):
    return Touched(**{"calls": 2, "nbytes": 256_000, "units": 256, "seconds": 0.005, **changes})


def seen(items, source="parquet"):
    found = {each.source: each for each in find_amplified(items, OBSERVED, ["load", "augment"])}
    return found.get(source)


def test_a_sample_is_the_usual_one_and_time_is_a_share_of_the_stage():
    found = seen([item(group(opens=1, opening_s=0.001, names={f"{number % 2}"})) for number in range(4)])
    assert (found.stage, found.unit, found.touched_per_sample, found.kept_per_sample) == (
        "load",
        "bytes",
        256_000,
        1000,
    )
    assert (found.rows_per_sample, found.samples, found.opens, found.opened_files) == (256, 4, 4, 2)
    assert (found.share, found.opening_share) == (pytest.approx(0.5), pytest.approx(0.1))


@pytest.mark.parametrize("reading", [1, 2])
def test_what_few_samples_read_is_kept_for_the_others(reading):
    items = [item(group()) for _ in range(reading)] + [item() for _ in range(4 - reading)]
    assert seen(items).touched_per_sample == 0


def test_of_a_batch_each_sample_gets_its_part():
    found = seen([item(group(), samples=32, kept=32_000)])
    assert (found.touched_per_sample, found.kept_per_sample, found.rows_per_sample) == (8000, 1000, 8)


@pytest.mark.parametrize(("read", "touched"), [(None, 256_000), (100_000, 256_000), (300, 0)])
def test_what_is_served_from_a_cache_of_the_library_was_not_read(read, touched):
    one = item(read=read)
    one.touched["hdf5", "load"] = group(kept=500)
    found = seen([one], "hdf5")
    assert (found.touched_per_sample, found.kept_per_sample) == (touched, 500)


def test_what_is_sent_is_copied_after_the_stage():
    one = item()
    one.touched["views", "load"] = Touched(nbytes=9000, kept=1000, seconds=0.03)
    found = seen([one], "views")
    assert (found.touched_per_sample, found.kept_per_sample, found.share) == (9000, 1000, pytest.approx(0.75))


def test_frames_and_all_bytes_read():
    one = item(read=9000, frames=2)
    one.touched["video", "load"] = group(units=60)
    film, read = seen([one], "video"), seen([one], "read")
    assert (film.unit, film.touched_per_sample, film.kept_per_sample) == ("frames", 60, 2)
    assert (read.stage, read.touched_per_sample, read.kept_per_sample) == ("load", 9000, 1000)


@pytest.mark.parametrize(
    ("items", "stages"),
    [
        ([item(), item()], ("load",)),
        ([item(), item(again=False)], ()),
        ([item(again_s=0.001), item(again_s=0.001)], ()),  # kept since the first time
        ([item(again=None)], ()),
    ],
)
def test_the_last_stage_that_gives_the_same_is_named(items, stages):
    found = find_repeated(items, ("augment", "load"))
    assert found.stages == stages
    assert (found.bytes_per_sample, found.seconds_per_sample) == ((1000, 0.01) if stages else (None, None))


def test_a_whole_sample_that_comes_again_is_all_of_its_stages():
    found = find_repeated([ItemSeen(4, {}, [Output(ITEM, 4000, 0, 0.04, True, 0.04)])], ("augment", "load"))
    assert (found.samples, found.stages, found.bytes_per_sample) == (1, ("load", "augment"), 1000)
    assert find_repeated([], ("fetch",)).samples is None


class Examining(Workers):
    def examinations(self):
        return [Examination([item()], is_complete=self.taken > 3) for _ in range(self.busy)]


@pytest.mark.parametrize(("idle", "taken"), [(0, 4), (1, 16)])
def test_each_worker_examines_and_those_without_data_are_given_up(idle, taken):
    loader = Examining(2, idle)
    assert len(examine(loader)) == 2 - idle
    assert (loader.taken, loader.modes) == (taken, [modes.EXAMINE, None])


def data(contents, indices=None, stage="load"):
    pairs = zip(indices or range(len(contents)), contents, strict=True)
    return [SampleData(index, stage, 500, content) for index, content in pairs]


def distinct(outputs):
    found = find_distinct(outputs, ["augment", "load"])
    return found.samples, found.different, found.seen_once, found.bytes_each


def test_contents_that_come_again_for_other_indices_are_counted_once():
    assert distinct(data([1, 2, 3, 1, 2, 3, 1, 2])) == (8, 3, 0, 500)
    assert distinct(data([1, 2, 3, 1, 2, 4])) == (6, 4, 2, 500)
    assert find_distinct(data([1, 2]), ["augment", "load"]).stage == "load"
    assert find_distinct(data([1, 2], stage=""), ["fetch"]).stage is None
    assert find_distinct(data([1, 2]), ["fetch"]).stage == "fetch"


def test_neighbours_with_the_same_content_and_an_index_that_is_asked_for_again_say_nothing_about_others():
    assert distinct(data([1, 1, 1, 2, 2, 2])) == (2, 2, 2, 500)
    assert distinct(data([1, 2, 1, 2], indices=[0, 1, 0, 1])) == (2, 2, 2, 500)
    assert distinct([]) == distinct(data([1]) + data([1], stage="")) == (None, None, None, None)
