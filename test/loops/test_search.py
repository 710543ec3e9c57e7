"""The search over recipes, with stopwatches that are functions."""

from dataclasses import replace

import pytest
from loops import kernels

from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import ArgumentError
from tinygrad.base.target import Target
from tinygrad.loops.heuristic import schedule
from tinygrad.loops.recipe import apply
from tinygrad.loops.search import STREAM, elsewhere, neighbours, search
from tinygrad.uop.op import Ops

KERNELS = {
    "matmul": kernels.matmul(64, 64, 64),
    "conv": kernels.conv(2, 8, 12, 12, 8),
    "softmax": kernels.softmax(40, 300),
    "attention": kernels.attention(2, 64, 16),
    "transpose": kernels.transpose(100, 90),
}


def number_of_loops(kernel):
    """A stopwatch that likes few loops; what is not legal takes for ever."""

    def seconds(recipe, limit):
        try:
            return 1.0 + sum(n.op is Ops.RANGE for n in apply(kernel, recipe).toposort())
        except ArgumentError:
            return float("inf")

    return seconds


@pytest.mark.parametrize("name", KERNELS)
def test_what_is_found_is_not_slower(name):
    kernel = KERNELS[name]
    recipe = schedule(kernel, kernels.WIDE)[1]
    seconds = number_of_loops(kernel)
    found, tried = search(recipe, elsewhere(kernel, kernels.WIDE), seconds, 2)
    assert seconds(found, 0) <= seconds(recipe, 0)
    assert 1 < tried < 200


def test_a_stopwatch_that_never_changes_keeps_the_recipe():
    recipe = schedule(KERNELS["matmul"], kernels.WIDE)[1]
    assert search(recipe, (), lambda r, limit: 1.0, 2)[0] is recipe


def test_candidates_that_all_fail_keep_the_recipe():
    recipe = schedule(KERNELS["matmul"], kernels.WIDE)[1]
    found, _ = search(recipe, (), lambda r, limit: 1.0 if r == recipe else float("inf"), 2)
    assert found == recipe


def test_no_recipe_is_timed_twice():
    kernel = KERNELS["softmax"]
    timed = []

    def seconds(recipe, limit):
        timed.append(recipe)
        return 1.0 / len(timed)

    recipe = schedule(kernel, kernels.WIDE)[1]
    search(recipe, elsewhere(kernel, kernels.WIDE), seconds, 2)
    assert len(set(timed)) == len(timed)


@pytest.mark.parametrize("name", KERNELS)
def test_a_change_is_legal_or_says_why_not(name):
    kernel = KERNELS[name]
    recipe = schedule(kernel, kernels.WIDE)[1]
    legal = 0
    for one in neighbours(recipe):
        try:
            apply(kernel, one)
            legal += 1
        except ArgumentError as error:
            assert str(error).startswith("step ")
    assert legal > 5


def test_streaming_is_not_searched():
    recipe = (*schedule(KERNELS["transpose"], kernels.WIDE)[1], STREAM)
    assert all(STREAM in one for one in neighbours(recipe))
    assert all(STREAM not in one for one in elsewhere(KERNELS["transpose"], kernels.SMALL))


GROUPS = Target("GPU", has_groups=True, group_limit=1024, local_memory=48 << 10, vector=16)


@pytest.mark.parametrize("name", KERNELS)
def test_devices_with_groups_have_much_to_choose_from(name):
    kernel = KERNELS[name]
    recipe = schedule(kernel, GROUPS)[1]
    others = {found for found in elsewhere(kernel, GROUPS) if found != recipe}
    near = set(neighbours(recipe))
    assert len(others | near) >= 3
    assert sum(_is_legal(kernel, found) for found in others | near) >= 3


def test_a_device_may_do_without_a_unit():
    units = replace(GROUPS, warp=32, registers=255, native=frozenset({"mma", "wgmma"}))
    size, (i, j, k) = 2048, (kernels.loop(2048, f"i{number}") for number in range(3))
    a = kernels.at(1, (size, size), i, k, dtype=dtypes.bfloat16).cast(dtypes.float32)
    b = kernels.at(2, (size, size), k, j, dtype=dtypes.bfloat16).cast(dtypes.float32)
    kernel = kernels.out((size, size), (a * b).reduce("add", k), i, j)
    found = [schedule(kernel, units)[1], *elsewhere(kernel, units)]
    used = {step[-1] for recipe in found for step in recipe if step[0] == "distribute"}
    assert used == {"wgmma.bf16.128", "mma.bf16"}


def _is_legal(kernel, recipe):
    try:
        return apply(kernel, recipe) is not None
    except ArgumentError:
        return False
