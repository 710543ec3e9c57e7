"""Recipes for groups of lanes, on the interpreter, whose lanes go in step from barrier to barrier:
against NumPy, at sizes that no block divides."""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from tinygrad.base.dtype import dtypes
from tinygrad.base.target import Target
from tinygrad.codegen.pipeline import lower
from tinygrad.loops.heuristic import schedule
from tinygrad.loops.recipe import apply
from tinygrad.uop.op import Ops


def beside(name):
    """A module of this folder."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


K = beside("kernels")

GPU = Target(
    "GPU",
    vector=16,
    registers=64,
    has_groups=True,
    group_limit=16,
    local_memory=48 << 10,
    native=frozenset(("MULACC",)),
)


def check(kernel, inputs, expected, tolerance=1e-5, target=GPU, **options):
    """The heuristic's recipe on groups gives what is expected; the recipe."""
    made, recipe = schedule(kernel, target)
    found = K.compute(made, np.shape(expected), inputs, "python", target=target, **options)
    np.testing.assert_allclose(found.astype(float), expected, rtol=0, atol=tolerance)
    return recipe


def staged(recipe):
    return [step[3] for step in recipe if step[0] == "stage"]


# ---- products ------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(33, 37, 21), (16, 16, 5), (17, 40, 1)])
@pytest.mark.parametrize("at", [False, True])
@pytest.mark.parametrize("bt", [False, True])
def test_products_share_pieces(shape, at, bt):
    m, n, k = shape
    a, b = K.normal(m, k), K.normal(k, n)
    inputs = [np.ascontiguousarray(x.T) if t else x for x, t in ((a, at), (b, bt))]
    assert staged(check(K.matmul(m, n, k, at, bt), inputs, a @ b)) == ["pa1", "pb1"] or k == 1


def test_what_operands_and_results_are_made_of_is_fused():
    m, n, k = K.loop("m", 19), K.loop("n", 22), K.loop("k", 18)
    a, b, c = K.normal(19, 18), K.normal(22, 18), K.normal(22)
    left = K.read(1, (19, 18), m, k).maximum(0)
    product = (left * (K.read(2, (22, 18), n, k) * 2)).reduce("add", k)
    kernel = K.out((19, 22), (product + K.read(3, (22,), n)).maximum(0), m, n)
    expected = np.maximum(np.maximum(a, 0) @ (2 * b).T + c, 0)
    assert len(staged(check(kernel, [a, b, c], expected))) == 2


def test_convolutions_lay_their_windows_out_as_they_bring_them():
    x, w = K.normal(2, 3, 7, 5), K.normal(17, 3, 3, 3)
    recipe = check(K.conv(2, 3, 7, 5, 17), [x, w], K.conv_ref(x, w))
    assert staged(recipe) == ["pa1", "pb1"] and any(step[0] == "merge" for step in recipe)


def test_a_sum_within_an_operand_is_summed_once():
    m, n, k, j = K.loop("m", 17), K.loop("n", 20), K.loop("k", 12), K.loop("j", 12)
    x, w = K.normal(17, 12), K.normal(12, 20)
    squares = (K.read(1, (17, 12), m, j) * K.read(1, (17, 12), m, j)).reduce("add", j)
    left = K.read(1, (17, 12), m, k) * (squares + 1e-5).sqrt().reciprocal()
    kernel = K.out((17, 20), (left * K.read(2, (12, 20), k, n)).reduce("add", k), m, n)
    expected = x / np.sqrt((x * x).sum(1, keepdims=True) + 1e-5) @ w
    assert staged(check(kernel, [x, w], expected)) == ["ps1", "pa1", "pb1"]


def test_lanes_meet_as_seldom_as_they_can():
    lowered = lower(schedule(K.matmul(64, 64, 64), GPU)[0], GPU)
    assert sum(node.op is Ops.BARRIER for node in lowered.phases[0].program) == 2


def test_a_product_without_room_goes_without_pieces():
    a, b = K.normal(20, 9), K.normal(9, 24)
    target = dataclasses.replace(GPU, local_memory=0)
    assert staged(check(K.matmul(20, 24, 9), [a, b], a @ b, target=target)) == []


@pytest.mark.parametrize("dtype", [dtypes.int32, dtypes.float64, dtypes.float16])
def test_products_of_other_dtypes(dtype):
    kind = K.NUMPY[dtype]
    a = np.random.randint(0, 5, (17, 20)).astype(kind)
    b = np.random.randint(0, 5, (20, 21)).astype(kind)
    check(K.matmul(17, 21, 20, dtype=dtype), [a, b], a @ b, dtype=kind)


# ---- lanes ---------------------------------------------------------------------------------------


def test_a_loop_of_one_turn_takes_no_lanes():
    kernel = apply(
        K.transposed(3, 5),
        [
            ("split", "i", 1, "il", "PARALLEL", "LANE"),
            ("role", "j", "LANE"),
        ],
    )
    x = K.normal(5, 3)
    found = K.compute(kernel, (3, 5), [x], "python", target=GPU)
    np.testing.assert_array_equal(found, x.T)


def test_each_stage_deals_its_work_out_in_its_own_way():
    recipe = [
        ("split", "n", 4, "nl", "PARALLEL", "LANE"),
        ("split", "m", 3, "ml", "PARALLEL", "LANE"),
        ("split", "k", 6, "ki"),
        ("stage", (0, 1, 0, 1), ("ki", "nl"), "pb", "LOCAL"),
        ("complete", "pb"),
        ("role", "pb.ki", "LANE"),
        ("split", "pb.nl", 2, "pb.v", "LANE", "VECTOR"),
        ("order", "pb", ("pb.nl", "pb.ki")),
    ]
    a, b = K.normal(11, 37), K.normal(37, 10)
    kernel = apply(K.matmul(11, 10, 37), recipe)
    found = K.compute(kernel, (11, 10), [a, b], "python", target=GPU)
    np.testing.assert_allclose(found, a @ b, rtol=0, atol=1e-5)
