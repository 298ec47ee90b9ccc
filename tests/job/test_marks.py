"""A marked function stays what it was: to call, to pickle, to inspect and to type-check."""

import inspect
import pickle
import subprocess
import sys

import pytest

import bottleneck
from bottleneck.job import marks


@bottleneck.stage("decode")
def decode(path: str, *, size: int = 3) -> list[int]:
    """Decode a file."""
    return [size] * len(path)


class Photos:
    @bottleneck.stage("crop")
    def crop(self, image: list[int]) -> list[int]:
        return image[1:]

    @staticmethod
    @bottleneck.stage("flip")
    def flip(image):
        return image[::-1]

    @bottleneck.stage("scale")
    @staticmethod
    def scale(image):
        return [2 * value for value in image]

    @bottleneck.stage("name")
    @classmethod
    def named(cls):
        return cls.__name__


class Derived(Photos):
    def crop(self, image):
        return super().crop(image)[:-1]


@pytest.fixture
def called():
    """The calls that a handler gets."""
    calls = []

    def handle(site, function, args, kwargs):
        calls.append((marks.name_of(site), args, kwargs))
        return function(*args, **kwargs)

    marks.handler = handle
    yield calls
    marks.handler = None


def test_a_marked_function_gives_what_it_gave():
    assert decode("ab") == [3, 3]
    assert decode(path="a", size=5) == [5]
    photos = Derived()
    assert photos.crop([1, 2, 3, 4]) == [2, 3]
    assert photos.flip([1, 2]) == [2, 1]
    assert Photos.scale([1]) == [2]
    assert Derived.named() == "Derived"


def test_it_can_be_pickled():
    assert pickle.loads(pickle.dumps(decode)) is decode
    assert pickle.loads(pickle.dumps(Photos().crop))([1, 2]) == [2]


def test_generators_stay_generators_and_are_no_cut(called):
    @bottleneck.stage("a generator")
    def numbers():
        got = yield 0
        yield got
        return "end"

    assert inspect.isgeneratorfunction(numbers)
    running = numbers()
    assert next(running) == 0
    assert running.send(5) == 5
    with pytest.raises(StopIteration, match="end"):
        next(running)
    assert [name for name, _, _ in called] == ["a generator"]  # so that the report can say that it is no cut


@pytest.mark.parametrize("name", marks.RESERVED)
def test_names_of_stages_that_are_measured_anyway_are_refused(name):
    with pytest.raises(ValueError, match=f"'{name}' is measured in any case"):
        bottleneck.stage(name)


@pytest.mark.parametrize("name", ["", "  ", "x" * 61, "a\nb", "a\x1b[31m"])
def test_names_that_no_report_could_show_are_refused(name):
    with pytest.raises(ValueError, match="1 to 60 printable characters"):
        bottleneck.stage(name)


async def later():
    pass


async def later_and_later():
    yield


@pytest.mark.parametrize("thing", [Photos, Photos(), later, later_and_later, 3])
def test_only_functions_and_methods_can_be_marked(thing):
    with pytest.raises(TypeError, match="marks functions and methods"):
        bottleneck.stage("thing")(thing)
    assert "thing" not in marks.names


def test_marking_imports_neither_torch_nor_numpy():
    code = (
        "import sys, bottleneck\n"
        "@bottleneck.stage('decode')\n"
        "def decode(): pass\n"
        "assert not {'torch', 'numpy'} & set(sys.modules), 'slow to import'"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
