"""The page about recipes is true: its example works, and is as short as it says."""

import re
from pathlib import Path

import pytest

from bottleneck.job import recipes
from bottleneck.job.cuts import find_sites
from bottleneck.job.recipes import Recipe

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
EXAMPLE, TRIAL = re.findall(r"^```python\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)


@pytest.fixture
def page(no_recipes):
    """The names that the example defines."""
    names = {"__name__": "tables"}
    exec(EXAMPLE, names)
    return names


def test_the_example_finds_what_it_says(page):
    dataset = page["TableStream"](float, abs, round)
    assert {site.name: site.stage for site in find_sites(dataset)} == {
        "table['read']": "load",
        "table['steps'][0]": "augment",
        "table['steps'][1]": "augment",
    }
    assert len(EXAMPLE.splitlines()) < 50


def test_without_the_recipe_it_would_find_nothing(page, monkeypatch):
    monkeypatch.setattr(recipes, "_registered", [])
    assert not find_sites(page["TableStream"](float, abs))


@pytest.mark.integration
def test_the_diagnosis_on_the_page_names_the_slow_part(page):
    exec(TRIAL, page)  # has its own assert


def test_the_page_names_every_question_that_a_recipe_is_asked():
    questions = {name for name, value in vars(Recipe).items() if callable(value) and not name.startswith("_")}
    assert questions == set(re.findall(r"^\| `(\w+)\(", PAGE, flags=re.MULTILINE))
