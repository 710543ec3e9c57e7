"""A recipe as plain data: the list of steps that turns a kernel into its scheduled form. The same
recipe applied to the same kernel gives the same result in every process, so it can be printed,
stored and replayed."""

from __future__ import annotations

import ast
from typing import Any

from tinygrad.base.errors import ArgumentError
from tinygrad.loops.primitives import PRIMITIVES
from tinygrad.uop.node import UOp

Step = tuple[Any, ...]
"""(name of a primitive, its arguments after the kernel...)"""

Recipe = tuple[Step, ...]


def apply(kernel: UOp, recipe: Recipe) -> UOp:
    """`kernel` after all steps; ArgumentError names the first step that isn't legal on it."""
    for number, (name, *args) in enumerate(recipe):
        if name not in PRIMITIVES:
            raise ArgumentError(f"step {number}: no primitive {name!r}; there are {_known()}")
        try:
            kernel = PRIMITIVES[name](kernel, *args)
        except ArgumentError as error:
            raise ArgumentError(f"step {number}, {_write((name, *args))}: {error}") from error
    return kernel


def to_text(recipe: Recipe) -> str:
    """One step a line.

    >>> print(to_text((("split", "m", 6, "mu", "LOOP", "UNROLL"), ("role", "n", "PARALLEL"))))
    split('m', 6, 'mu', 'LOOP', 'UNROLL')
    role('n', 'PARALLEL')
    """
    return "\n".join(_write(step) for step in recipe)


def from_text(text: str) -> Recipe:
    """The recipe that `to_text` wrote; ArgumentError with the line if it is none.

    >>> from_text("role('n', 'PARALLEL')")
    (('role', 'n', 'PARALLEL'),)
    """
    steps: list[Step] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        name, bracket, rest = line.partition("(")
        if name not in PRIMITIVES or not bracket or not rest.endswith(")"):
            raise ArgumentError(f"not a step of a recipe: {line!r}; primitives are {_known()}")
        try:
            args = ast.literal_eval(f"({rest[:-1]},)") if rest != ")" else ()
        except (SyntaxError, ValueError) as error:
            raise ArgumentError(f"not a step of a recipe: {line!r}") from error
        steps.append((name, *args))
    return tuple(steps)


def _write(step: Step) -> str:
    return f"{step[0]}({', '.join(map(repr, step[1:]))})"


def _known() -> str:
    return ", ".join(PRIMITIVES)
