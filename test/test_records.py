"""The project's `dataclass` is Python's: the same classes, decorated by both, behave alike."""

import copy
import dataclasses
import inspect
import pickle
from dataclasses import InitVar, field, replace
from typing import ClassVar

import pytest

from tinygrad.base.records import dataclass

BOTH = {"ours": dataclass, "Python's": dataclasses.dataclass}


def classes(decorate):
    @decorate(frozen=True)
    class Point:
        x: int
        y: int = 2
        seen: ClassVar[int] = 0

    @decorate
    class Plain:
        items: list[int] = field(default_factory=list)
        point: Point = Point(1)

    @decorate(frozen=True)
    class Deep(Point):
        z: int = 3

    @decorate(frozen=True, kw_only=True)
    class Named:
        a: int
        b: int = 1

    @decorate(eq=False)
    class Made:
        given: InitVar[int]
        twice: int = 0
        later: int = field(init=False)

        def __post_init__(self, given):
            self.later = given + self.twice

    @decorate(frozen=True)
    class Own:
        name: str
        note: str = field(default="", repr=False, compare=False)

        def __repr__(self):
            return self.name

    return locals()


FACTS = {
    "repr": "Point(1), Plain([1]), Deep(1, z=5), Named(a=1), Made(3, 4), Own('a')",
    "equal": "Point(1) == Point(1, 2), Point(1) == Deep(1), Plain() == Plain(), Made(1) == Made(1)",
    "not compared": "Own('a', 'b') == Own('a', 'c')",
    "hash": "hash(Point(1)) == hash(Point(1, 2)), Plain.__hash__, {Own('a'): 1}[Own('a', 'b')]",
    "own default": "Plain().items is not Plain().items",
    "post_init": "Made(3, 4).later, Made(given=3).twice",
    "replaced": "replace(Deep(1), z=7), dataclasses.asdict(Plain([1]))",
    "copied": "copy.copy(Point(1)), copy.deepcopy(Plain([1]))",
    "signature": "[parameters(c) for c in (Point, Named, Made)]",
    "matched": "Point.__match_args__, [f.name for f in dataclasses.fields(Deep)]",
}
REFUSED = ["Point()", "Point(1, 2, 3)", "Point(1).__setattr__('x', 2)", "Named(1)", "hash(Plain())"]


def parameters(cls):
    return [(p.name, p.kind, str(p.default)) for p in inspect.signature(cls).parameters.values()][
        :2
    ]


SCOPE = {"copy": copy, "dataclasses": dataclasses, "parameters": parameters, "replace": replace}


def told(way, text):
    return str(eval(text, SCOPE | classes(BOTH[way])))


@pytest.mark.parametrize("text", FACTS.values(), ids=FACTS)
def test_classes_are_those_of_python(text):
    assert told("ours", text) == told("Python's", text)


@pytest.mark.parametrize("text", REFUSED)
def test_what_python_refuses_is_refused(text):
    for way in BOTH:
        with pytest.raises((TypeError, dataclasses.FrozenInstanceError)):
            told(way, text)


@dataclass(frozen=True)
class Kept:
    numbers: tuple[int, ...]


def test_a_record_that_was_pickled_is_equal():
    assert pickle.loads(pickle.dumps(Kept((1, 2)))) == Kept((1, 2))
