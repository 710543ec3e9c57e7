"""Recipes are plain data: text both ways, the same result in another process, errors that say
which step is wrong."""

import os
import subprocess
import sys

import pytest
from loops import kernels

from tinygrad.base.errors import ArgumentError
from tinygrad.loops.heuristic import schedule
from tinygrad.loops.recipe import apply, from_text, to_text

PROGRAM = """
from loops import kernels
from tinygrad.loops.heuristic import schedule
from tinygrad.loops.recipe import to_text
kernel = kernels.attention(2, 100, 16)
scheduled, recipe = schedule(kernel, kernels.SMALL)
print(scheduled.key.hex())
print(to_text(recipe))
"""


def test_another_process_finds_the_same():
    here = os.path.dirname(os.path.dirname(__file__))
    path = os.pathsep.join((here, os.path.dirname(here)))
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "7"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    key, text = done.stdout.split("\n", 1)
    kernel = kernels.attention(2, 100, 16)
    scheduled, recipe = schedule(kernel, kernels.SMALL)
    assert (key, text.strip()) == (scheduled.key.hex(), to_text(recipe))
    assert apply(kernel, from_text(text)) is scheduled


def test_a_wrong_step_is_named():
    recipe = (("split", "i0", 4, "j"), ("role", "nothing", "VECTOR"))
    with pytest.raises(ArgumentError, match=r"step 1, role\('nothing', 'VECTOR'\): no loop"):
        apply(kernels.elementwise(8), recipe)


@pytest.mark.parametrize("text", ["fuse('i0')", "split('i0'", "split(__import__('os'))"])
def test_text_that_is_no_recipe(text):
    with pytest.raises(ArgumentError, match="not a step of a recipe"):
        from_text(text)
