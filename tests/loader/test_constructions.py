"""Which objects count as made again with the same arguments, by the frames of real calls."""

import contextlib
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from bottleneck.loader.observing.constructions import Constructions, stack_below
from bottleneck.loader.observing.meter import Spent
from bottleneck.loader.observing.observation import Observation

HERE = Path(__file__)
looks = []
"""Gets the stack wherever the thread is looked at."""


def look():
    looks.append(stack_below(sys._getframe(1), (entry.__code__,)))


def entry(make, *arguments):
    return make(*arguments)


class Client:
    def __init__(self, bucket, retries=(3, "s"), **options):
        self.bucket = bucket
        look()


class Signing(Client):
    def __init__(self, bucket):
        super().__init__(bucket, key={"id": 1})


class Sample:
    def __init__(self, index, client=None):
        self.index, self.client = index, client or Client("b")
        look()


def connect(path, *rest, timeout=5):
    look()


class Files:
    bucket = Path("data")
    opened = object()

    def client(self, _):
        return Client(Path("data"))

    def signing(self, _):
        return Signing(self.bucket)

    def of_sample(self, index):
        return Client(f"chunk-{index}")

    def of_array(self, index):
        return Client([index])

    def sample(self, index):
        return Sample(index)

    def connected(self, _):
        return connect("store", self.opened)

    def crop(self, _):
        return look()

    def once_closed(self, _):
        with contextlib.closing(SimpleNamespace(close=look)):
            pass


def line_of(text):
    return 1 + HERE.read_text().splitlines().index(text)


def seen(name, samples=3):
    found, see = Observation(), Constructions()
    for part in range(samples):
        looks.clear()
        entry(getattr(Files(), name), part)
        for stack in looks:
            see.see(found, "load", part, Spent(1.0, 0.0), stack)
    return found


def again(found):
    return {site.name: made for (_, site), made in found.constructed.items() if made.same}


@pytest.mark.parametrize(
    ("method", "name", "text"),
    [
        ("client", "Client", '        return Client(Path("data"))'),
        ("signing", "Signing", "        return Signing(self.bucket)"),
        ("connected", f"{__name__}.connect", '        return connect("store", self.opened)'),
        ("sample", "Client", '        self.index, self.client = index, client or Client("b")'),
    ],
)
def test_what_is_made_with_the_same_arguments_for_each_sample_is_found_at_the_line_that_makes_it(method, name, text):
    found = seen(method)
    assert list(again(found)) == [name]
    ((_, site),) = [key for key, made in found.constructed.items() if made.same]
    assert (site.file, site.line) == (str(HERE), line_of(text))
    assert (again(found)[name].parts, again(found)[name].wall_s) == (3, 3.0)
    assert found.sampled["load"] == 3


@pytest.mark.parametrize("method", ["of_sample", "of_array", "crop", "once_closed"])
def test_what_is_made_of_the_sample_or_for_a_single_use_is_not(method):
    found = seen(method)
    assert again(found) == {}
    assert found.sampled["load"] == 3


def test_a_construction_counts_once_a_sample_however_often_it_is_looked_at():
    found, see = Observation(), Constructions()
    looks.clear()
    entry(Files().client, 0)
    for part in (0, 0, 0, 1):
        see.see(found, "load", part, Spent(1.0, 0.0), looks[0])
    assert (again(found)["Client"].parts, again(found)["Client"].wall_s, found.sampled["load"]) == (2, 4.0, 2)


def test_findings_of_batches_and_workers_add_up_and_one_with_other_arguments_decides():
    total = Observation()
    total.add(seen("client"))
    total.add(seen("client"), lambda _: "load")
    assert (again(total)["Client"].parts, total.sampled["load"]) == (6, 6)
    total.add(seen("of_sample"))
    assert len(again(total)) == 1
    for (_, site), made in total.constructed.items():
        assert made.same == (site.line == line_of('        return Client(Path("data"))'))


def test_code_that_is_no_sample_of_ours_shows_nothing():
    looks.clear()
    Files().client(0)  # as in a worker's start
    assert looks == [[]]
