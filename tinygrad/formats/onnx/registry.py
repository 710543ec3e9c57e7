"""What an operator is here: a row with a small function.

A function gets the node's inputs in order (None for one that is left out) and its attributes by
name, and returns a value or a tuple of them. Values are tensors; arrays of NumPy for what the host
must know (shapes, axes, strings) and for element types that tensors lack; lists for sequences.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from tinygrad.tensor import Tensor

Value = Any
"""A Tensor, an array, a list of values (a sequence), or None."""

Array = NDArray[Any]
Function = Callable[..., Value]


@dataclass(frozen=True)
class Row:
    """One operator from one version of the standard on.

    `host` are the places of inputs that the function gets as arrays, which is what decides shapes;
    ALL of them for an operator that runs on the host. `wants` names what else it gets: "outputs",
    the number of results that the node names; "version", the operator set's; "graph", a function
    that runs a graph in the scope of the node.
    """

    function: Function
    host: tuple[int, ...] = ()
    wants: tuple[str, ...] = ()


ALL = tuple(range(100))

Table = Mapping[str, Row | Mapping[int, Row]]
"""Rows by operator; by version, where its meaning changed, under the first one that has it."""


def tensors(function: Function) -> Row:
    """A row of a function of tensors alone."""
    return Row(function)


def on_host(function: Function, *wants: str) -> Row:
    """A row of a function of arrays alone."""
    return Row(function, ALL, wants)


def row_for(table: Table, operator: str, version: int) -> Row | None:
    """The row that holds in a version of the operator set, if there is one."""
    found = table.get(operator)
    if found is None or isinstance(found, Row):
        return found
    known = [since for since in found if since <= version]
    return found[max(known)] if known else None


def like(x: Tensor, value: Any) -> Tensor:
    """A number as a tensor that broadcasts with `x`, in its dtype."""
    return Tensor.full((), value, dtype=x.dtype, device=x.device)
