"""Functions of others that are replaced for a while."""

import types

import pytest

from bottleneck.job.replaced import replace_function, replaced


class Base:
    def name(self):
        return "base"


class Derived(Base):
    @staticmethod
    def twice(number):
        return 2 * number


def louder(original):
    return lambda *arguments: f"{original(*arguments)}!"


def test_a_function_is_its_own_again_afterwards():
    module = types.ModuleType("library")
    module.greet = greet = lambda: "hello"
    with replaced(module, "greet", louder):
        assert module.greet() == "hello!"
    assert module.greet is greet


def test_an_inherited_function_is_replaced_for_one_class_alone():
    restore = replace_function(Derived, "name", louder)
    assert (Derived().name(), Base().name()) == ("base!", "base")
    restore()
    assert "name" not in vars(Derived)
    assert Derived().name() == "base"


def test_a_static_function_stays_static():
    before = vars(Derived)["twice"]
    with replaced(Derived, "twice", lambda original: staticmethod(lambda number: original(number) + 1)):
        assert Derived().twice(2) == 5
    assert vars(Derived)["twice"] is before


def test_a_method_of_one_object_is_replaced_there():
    one, other = Base(), Base()
    with replaced(one, "name", louder):
        assert (one.name(), other.name()) == ("base!", "base")
    assert vars(one) == {}


def test_what_is_missing_cannot_be_replaced():
    with pytest.raises(AttributeError):
        replace_function(Base, "nothing", louder)


def test_it_is_restored_where_the_body_fails():
    with pytest.raises(ValueError, match="body"), replaced(Base, "name", louder):
        raise ValueError("body")
    assert Base().name() == "base"
