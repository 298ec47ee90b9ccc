"""Recipes are asked by the class of an object, the user's first, and what they say is checked."""

import pytest

import bottleneck
from bottleneck import Recipe
from bottleneck.errors import PipelineError
from bottleneck.job import recipes
from bottleneck.job.cuts import find_sites
from bottleneck.job.inspect import Item, entries
from bottleneck.job.recipes import FoundCallable
from tests.job.test_cuts import by_name

pytestmark = pytest.mark.usefixtures("no_recipes")


class Shards:
    """A dataset of a framework; not PyTorch's class, and with a function in a hidden place."""

    def __init__(self, *inner):
        self.options = {"work": abs, "number": 3}
        self.inner = list(inner)

    def __getitem__(self, index):
        return self.options["work"](self.read(index))

    def read(self, index):
        return index


class Chain:
    """A transform of the framework."""

    def __init__(self, *steps):
        self.steps = steps

    def __call__(self, value):
        for step in self.steps:
            value = step(value)
        return value


class ShardsRecipe(Recipe):
    name = "shards"
    packages = (__name__,)

    def callables(self, holder):
        if "work" in getattr(holder, "options", {}):
            yield FoundCallable(("options", Item("work")), "augment")

    def datasets(self, holder):
        yield from (path for path, _ in entries(getattr(holder, "inner", ()), ("inner",)))

    def members(self, transform):
        yield from (path for path, _ in entries(getattr(transform, "steps", ()), ("steps",)))


def test_without_a_recipe_only_what_is_usual_is_found():
    assert by_name(find_sites(Shards())) == {"read": "load"}
    assert not recipes.members(Chain(abs))


def test_a_registered_recipe_is_asked():
    bottleneck.register_recipe(ShardsRecipe())
    assert by_name(find_sites(Shards())) == {"options['work']": "augment", "read": "load"}
    assert recipes.members(Chain(abs, len)) == [("steps", 0), ("steps", 1)]


def test_a_complete_recipe_leaves_nothing_else_to_be_searched_in_the_frameworks_classes():
    class Complete(ShardsRecipe):
        complete = True

    class Mine(Shards):
        def __init__(self):
            super().__init__()
            self.augment = abs

        def __getitem__(self, index):
            return self.decode(super().__getitem__(index))

        def decode(self, value):
            return value

    Mine.__module__ = "somewhere.else"
    bottleneck.register_recipe(Complete())
    assert by_name(find_sites(Shards())) == {"options['work']": "augment"}
    mine = by_name(find_sites(Mine()))
    assert mine == {"options['work']": "augment", "augment": "augment", "decode": "load"}


def test_an_object_that_a_loader_cannot_take_is_adopted():
    class Adopting(ShardsRecipe):
        def adopt(self, dataset):
            return list(dataset.inner) if isinstance(dataset, Shards) else dataset

    bottleneck.register_recipe(Adopting())
    assert bottleneck.Pipeline(dataset=Shards(1, 2)).dataset == [1, 2]
    kept = [3]
    assert bottleneck.Pipeline(dataset=kept).dataset is kept


@pytest.mark.parametrize(
    ("path", "why"),
    [(("nowhere",), "does not exist"), (("options", Item("gone")), "does not exist"), (("inner", 5), "does not exist"),
     (("options", Item("number")), "cannot be called")],
)  # fmt: skip
def test_a_recipe_that_names_what_is_not_there_is_refused_in_one_sentence(path, why):
    class Wrong(ShardsRecipe):
        def callables(self, holder):
            yield FoundCallable(path, "augment")

    bottleneck.register_recipe(Wrong())
    with pytest.raises(PipelineError) as caught:
        find_sites(Shards())
    assert "'shards'" in caught.value.message
    assert why in caught.value.message


def test_a_recipe_that_raises_is_named():
    class Broken(ShardsRecipe):
        def datasets(self, holder):
            raise KeyError("oh")

    bottleneck.register_recipe(Broken())
    with pytest.raises(PipelineError, match="'shards' failed on a Shards: KeyError"):
        find_sites(Shards())


def test_a_recipe_of_ours_that_fails_on_another_version_of_a_framework_says_nothing(monkeypatch):
    class Broken(ShardsRecipe):
        def callables(self, holder):
            raise AttributeError("renamed")

        def members(self, transform):
            yield ("renamed",)

    monkeypatch.setattr(recipes, "_BUILT_IN", (Broken(),))
    assert by_name(find_sites(Shards())) == {"read": "load"}
    assert recipes.members(Chain(abs)) == []


def test_what_is_no_recipe_cannot_be_registered():
    with pytest.raises(TypeError, match=r"write register_recipe\(ShardsRecipe\(\)\)"):
        bottleneck.register_recipe(ShardsRecipe)
    with pytest.raises(TypeError, match="derived from"):
        bottleneck.register_recipe("shards")
    with pytest.raises(ValueError, match="name"):
        bottleneck.register_recipe(Recipe())
