"""Loops that are cut where what they read begins and ends, and what they then compute."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tinygrad import Tensor
from tinygrad.base.target import Target
from tinygrad.codegen.cuts import guards_of, pieces
from tinygrad.codegen.pipeline import lower
from tinygrad.engine.structure import structure_of
from tinygrad.loops.heuristic import schedule
from tinygrad.schedule.kernels import plan
from tinygrad.simplify.affine import add
from tinygrad.simplify.forms import number
from tinygrad.uop.node import UOp

MACHINE = Target("CPU", vector=64, registers=32, native=frozenset(("MULACC", "MAX")))


def test_pieces_are_where_guards_are_known_or_not():
    draw = random.Random(0)
    loop, other = UOp.range(12, "i"), UOp.range(7, "j")
    for _ in range(2000):
        factor, step = draw.choice([-5, -3, -1, 1, 2, 4]), draw.choice([-1, 0, 1, 3])
        constant = draw.randrange(-50, 50)
        guard = add(add(number(constant), loop, factor), other, step)
        found = pieces(loop, (0, 11), [guard], {})
        assert [turn for low, high in found for turn in range(low, high + 1)] == [*range(12)]
        for low, high in found:
            rows = [
                {factor * i + step * j + constant < 0 for j in range(7)}
                for i in range(low, high + 1)
            ]
            assert low == high or all(row == rows[0] for row in rows), (factor, step, constant)


def arrays(*shapes):
    draw = np.random.default_rng(0)
    return [draw.standard_normal(shape).astype(np.float32) for shape in shapes]


WIDE, LONG = (40, 700), (900, 40)


def kernel_of(tensor: Tensor) -> UOp:
    (step,) = plan(structure_of([tensor.uop]).sink).steps
    return step.ast


def nest_of(tensor: Tensor) -> str:
    """The loop tree of its only kernel."""
    return lower(schedule(kernel_of(tensor), MACHINE)[0], MACHINE).phases[-1].nest


def test_a_concatenation_goes_through_its_parts_one_after_the_other():
    a, b = (Tensor(value).realize() for value in arrays((1000, 64), (500, 64)))
    for tensor in (a.cat(b), a.cat(b).sum(1)):
        tree = nest_of(tensor)
        assert "for i0 in 0..13, tasks" in tree
        assert "for i0c in 0..25" in tree  # of the task that goes through both
        assert "for i0 in 14..20, tasks" in tree


def test_a_loop_whose_last_turn_has_fewer_copies_is_cut_too():
    """Copies have limits that count with the loop; where a guard turns is known all the same."""
    (value,) = arrays((100, 1000))
    lines = nest_of(Tensor(value).realize().roll(37, 1)).splitlines()
    assert [line.strip() for line in lines if "i1" in line][1:] == [
        "i1 = 0",
        "for i1 in 1..15",
        "i1 = 15",
    ]


def test_taps_of_a_convolution_are_not_cut():
    image, weight = (Tensor(value).realize() for value in arrays((1, 32, 20, 20), (32, 32, 3, 3)))
    assert "k1 = 0" not in nest_of(image.conv2d(weight, padding=1))


def test_rows_beside_an_image_s_edge_are_apart_where_little_is_written_out():
    (image,) = (Tensor(value).realize() for value in arrays((1, 32, 20, 64)))
    few = nest_of(image.pad(((0, 0), (0, 0), (1, 1), (1, 1))) + 1)
    many = nest_of(image.avg_pool2d(3, 1, padding=1))
    assert "for i1 in 1..21" in few, few
    assert "1.." not in many, many


def test_what_is_hidden_in_most_turns_is_apart_however_much_is_written_out():
    (image,) = (Tensor(value).realize() for value in arrays((1, 32, 40, 64)))
    tree = nest_of(image.pad((2, 2, 2, 2), mode="reflect"))
    assert "for i1c in 2..22" in tree, tree


def test_only_what_reaches_far_cuts_what_is_staged():
    image, other = (Tensor(value).realize() for value in arrays((2, 32, 20, 64), (2, 32, 20, 64)))
    edges, halves = image.pad(((0, 0), (0, 0), (1, 1), (1, 1))), image.cat(other)
    cut = [
        [bool(guards_of(kernel_of(each).src[0].src[1:2], is_stored)) for each in (edges, halves)]
        for is_stored in (True, False)
    ]
    assert cut == [[True, True], [False, True]]


CASES = {
    "rows": (lambda a, b: a.cat(b), lambda a, b: np.concatenate([a, b]), (LONG, (333, 40))),
    "columns": (
        lambda a, b: a.cat(b, dim=1),
        lambda a, b: np.concatenate([a, b], 1),
        (WIDE, (40, 333)),
    ),
    "sums of rows": (
        lambda a, b: a.cat(b).sum(1),
        lambda a, b: np.concatenate([a, b]).sum(1),
        (LONG, (333, 40)),
    ),
    "a sum of all": (
        lambda a, b: a.cat(b).sum(),
        lambda a, b: np.concatenate([a, b]).sum(),
        ((100_010,), (100_000,)),
    ),
    "a stack": (
        lambda a, b: a.stack(b).max((1, 2)),
        lambda a, b: np.stack([a, b]).max((1, 2)),
        (WIDE, WIDE),
    ),
    "rolled": (lambda a: a.roll(-77, 1), lambda a: np.roll(a, -77, 1), (WIDE,)),
    "padded": (
        lambda a: a.pad(((3, 5), (70, 9)), value=2),
        lambda a: np.pad(a, ((3, 5), (70, 9)), constant_values=2),
        (WIDE,),
    ),
    "reflected": (
        lambda a: a.reshape(1, 40, 700).pad((3, 2, 5, 4), mode="reflect"),
        lambda a: np.pad(a[None], ((0, 0), (5, 4), (3, 2)), mode="reflect"),
        (WIDE,),
    ),
    "a product": (
        lambda a, b, c: a.cat(b, dim=1) @ c,
        lambda a, b, c: np.concatenate([a, b], 1) @ c,
        ((40, 700), (40, 33), (733, 50)),
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("device", ["CPU", "PYTHON"])
def test_what_cut_loops_compute(name, device):
    ours, right, shapes = CASES[name]
    values = arrays(*shapes)
    found = ours(*[Tensor(value, device=device) for value in values]).numpy()
    np.testing.assert_allclose(found, right(*values), rtol=1e-4, atol=1e-3)
