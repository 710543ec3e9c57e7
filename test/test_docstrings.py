"""The examples in docstrings are run: what a page shows is what happens."""

import doctest
import importlib
import importlib.util
import inspect
import pkgutil
import re
import sys
from pathlib import Path

import pytest

import tinygrad
from tinygrad.loops.primitives import PRIMITIVES
from tinygrad.viz import loops as drawing

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
    known = {
        name: getattr(tinygrad, name) for name in ("Tensor", "UOp", "Variable", "nn", "dtypes")
    }
    if "loops" in name:
        known |= vars(drawing) | PRIMITIVES
    assert doctest.testmod(module, extraglobs=known, optionflags=flags).failed == 0


@pytest.mark.parametrize("name", PRIMITIVES)
def test_a_primitive_says_what_it_requires_and_shows_what_it_does(name):
    text = inspect.getdoc(PRIMITIVES[name])
    assert "Requires: " in text, "requires"
    assert re.search(r"\s{2}becomes|\nbecomes", text), "before and after"
    assert f"{name}(" in text.partition(">>>")[2], "an example"


# ---- the public API ------------------------------------------------------------------------------

TOOL = Path(__file__).parent.parent / "tools" / "api_page.py"


@pytest.fixture(scope="module")
def api():
    spec = importlib.util.spec_from_file_location("api_page", TOOL)
    module = importlib.util.module_from_spec(spec)
    sys.modules["api_page"] = module
    spec.loader.exec_module(module)
    return module


def test_all_that_the_package_names_is_public(api):
    named = {path for path, attribute in tinygrad._WHEN_NAMED.values() if attribute is None}
    assert named <= set(api.MODULES.values())


def test_every_public_name_says_what_it_does(api):
    entries = [entry for group in api.groups().values() for entry in group]
    assert len(entries) > 600
    assert not [e.name for e in entries if not e.doc or not e.doc[0].isprintable()]


def test_every_public_name_shows_an_example_that_is_run(api):
    entries = [entry for group in api.groups().values() for entry in group]
    silent = {e.short for e in entries if not e.examples and not e.is_in_place}
    assert silent == set(api.NO_EXAMPLE), "write one, or say in tools/api_page.py why there is none"
    skipped = [e.name for e in entries if "doctest: +SKIP" in e.doc]
    assert not skipped


def test_every_method_of_a_public_class_says_what_it_does_and_shows_it(api):
    methods = list(api.of_public_classes())
    assert len(methods) > 300
    assert not [m.name for m in methods if not m.doc and m.short not in api.HOOKS]
    silent = {m.short for m in methods if not m.examples and not m.is_in_place}
    assert silent - set(api.NO_EXAMPLE) == set(api.HOOKS), "write one, or say why there is none"


def test_the_graph_is_on_the_page(api):
    shown = {entry.name for entry in api.groups()["The graph: UOp"]}
    assert {"UOp.simplify", "UOp.vars", "UOp.where", "UOp.vmax", "UOp.toposort"} <= shown


def test_the_page_of_the_api_is_up_to_date(api):
    """After a change: python tools/api_page.py > docs/api.md"""
    assert api.page() == (TOOL.parent.parent / "docs" / "api.md").read_text()
