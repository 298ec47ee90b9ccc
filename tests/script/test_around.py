"""The source around the loop over the batches."""

import contextlib
import itertools
import sys

import pytest

from bottleneck.script.around import Around, Place, Within, every, find_around
from tests.support.sources import written


class Ask(Exception):
    pass


class Batches:
    """Asks at one of its batches, as the iterator of a loader does."""

    def __init__(self, code, at=1):
        self.within, self.at, self.given, self.found = Within(code, 0), at, 0, None

    def __iter__(self):
        return self

    def __next__(self):
        self.given += 1
        if self.given == self.at:
            self.found = find_around(sys._getframe(1), self.within)
            raise Ask
        if self.given % 2 == 0:
            raise StopIteration
        return self.given


def around(source, at=1, **given):
    """Return the source around the loop of a script that takes its batches from `loader`, at one of these."""
    _, code = written(source)
    loader = Batches(code, at)
    with pytest.raises(Ask):
        exec(code, {"loader": loader, "evaluate": len, "save": len, **given})
    return loader.found


FLAT = """
for epoch in {rounds}:
    for batch in loader:
        print(batch)
    evaluate([])
"""


@pytest.mark.parametrize(
    ("rounds", "goes_on"),
    [
        ("range(3)", True),
        ("range(1)", False),
        ("range(start, settings['epochs'])", True),
        ("tqdm(range(args.epochs))", True),
        ("[7]", False),
        ("unknown()", False),
        ("itertools.count()", True),
    ],
)
def test_whether_another_epoch_follows(rounds, goes_on):
    given = {
        "start": 1,
        "settings": {"epochs": 3},
        "args": type("Arguments", (), {"epochs": 3})(),
        "tqdm": lambda rounds: rounds,
        "unknown": lambda: iter([1, 2]),
        "itertools": itertools,
    }
    found = around(FLAT.format(rounds=rounds), **given)
    assert (found.goes_on, found.follows.line) == (goes_on, 5)


@pytest.mark.parametrize(("at", "goes_on"), [(1, True), (3, True), (5, False)])
def test_the_last_epoch_of_a_range_is_known(at, goes_on):
    assert around(FLAT.format(rounds="range(3)"), at=at).goes_on is goes_on


@pytest.mark.parametrize(("test", "goes_on"), [("True", True), ("step < 9", True), ("step < 3", False), ("go()", True)])
def test_a_while_goes_on_unless_its_test_says_that_it_does_not(test, goes_on):
    source = f"""
    step = 0
    while {test}:
        step = 5
        for batch in loader:
            pass
    """
    assert around(source, go=lambda: True) == Around(goes_on, None)


@pytest.mark.parametrize(
    "source",
    [
        "for batch in loader:\n    evaluate([])",
        "def train():\n    for batch in loader:\n        pass\ntrain()\nevaluate([])",
        "while True:\n    batch = next(loader)",
        "def forever():\n    while True:\n        yield from loader\nfor batch in forever():\n    evaluate([])",
    ],
)
def test_a_loop_over_batches_that_is_in_no_other_one(source):
    assert around(source) is None


FUNCTIONS = """
def train(loader):
    for batch in loader:
        pass
    return {after}


def main():
    for epoch in range(5):
        {before}
        train(loader)
        if epoch % 5 == 4:
            {then}


main()
"""


LOGS = "print('epoch', round(float(sum([1])), 3), max(1, 2))"


@pytest.mark.parametrize(
    ("calls", "line"),
    [
        ({"then": "save([])"}, 13),
        ({"after": "evaluate([])"}, 5),
        ({"before": "save([])"}, 10),
        ({}, None),
        ({"before": LOGS}, None),
    ],
)
def test_the_statement_that_follows_an_epoch_is_found_through_the_functions(calls, line):
    found = around(FUNCTIONS.format(**{"after": "None", "before": "print('epoch')", "then": "pass"} | calls))
    assert (found.goes_on, found.follows and found.follows.line) == (True, 12 if line == 13 else line)


def test_a_loop_around_the_with_block_is_none_of_epochs():
    source = """
    for learning_rate in range(3):
        with diagnosing:
            for epoch in range(2):
                for batch in loader:
                    pass
    """
    _, code = written(source)
    found = []

    class Loader:
        def __iter__(self):
            found.extend(find_around(sys._getframe(1), Within(code, line)) for line in (3, 5))
            return iter(())

    exec(code, {"loader": Loader(), "diagnosing": contextlib.nullcontext()})
    assert found[0] == Around(True, None)
    assert found[1] is None


@pytest.mark.parametrize(
    ("test", "epochs"),
    [("epoch % 5 == 0", 5), ("(epoch + 1) % settings.often == 0", 3), ("epoch % often() == 0", 1), ("epoch < 2", 1)],
)
def test_how_often_a_statement_runs(test, epochs):
    settings = type("Settings", (), {"often": 3})()
    name, code = written(f"""
    def main():
        for epoch in range(9):
            ask()
            if {test}:
                save()
    main()
    """)
    found = []

    def ask():
        found.append(every([sys._getframe(1)], Place(name, 6)))

    exec(code, {"ask": ask, "settings": settings, "often": lambda: 2, "save": lambda: None})
    assert set(found) == {epochs}
