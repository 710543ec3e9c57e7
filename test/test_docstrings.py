"""The examples in docstrings are run: what a page shows is what happens."""

import doctest
import importlib
import pkgutil

import pytest

import tinygrad
from tinygrad.loops import drawing
from tinygrad.loops.primitives import PRIMITIVES

ABSENT = ("tinygrad.backends.cl", "tinygrad.__main__")  # needs a driver; is a program


def modules_with_examples():
    names = [m.name for m in pkgutil.walk_packages(tinygrad.__path__, "tinygrad.")]
    for name in names:
        if not name.startswith(ABSENT):
            module = importlib.import_module(name)
            if any(test.examples for test in doctest.DocTestFinder().find(module)):
                yield name


@pytest.mark.parametrize("name", sorted(modules_with_examples()))
def test_examples(name):
    module = importlib.import_module(name)
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    known = {"Tensor": tinygrad.Tensor, "nn": tinygrad.nn, "dtypes": tinygrad.dtypes}
    if "loops" in name:
        known |= vars(drawing) | PRIMITIVES
    assert doctest.testmod(module, extraglobs=known, optionflags=flags).failed == 0


@pytest.mark.parametrize("name", PRIMITIVES)
def test_a_primitive_says_what_it_requires_and_shows_what_it_does(name):
    text = PRIMITIVES[name].__doc__
    assert "Requires: " in text, "requires"
    assert " becomes" in text or "s1 += name" in text, "before and after"
    assert f"{name}(" in text.partition(">>>")[2], "an example"
