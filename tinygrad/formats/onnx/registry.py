"""What an operator is here: a row with a small function.

The function gets the node's inputs in order (None for one that is left out) and its attributes by
name, and returns a value or a tuple of values. Values are tensors; NumPy arrays for what the host
must know (shapes, axes, strings) and for element types that tensors lack; lists for sequences.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Value = Any
"""A Tensor, an array, a list of values (a sequence), or None."""

Array = NDArray[Any]
Function = Callable[..., Value]


@dataclass(frozen=True)
class Row:
    """One operator from one version of the standard on.

    `host` are the places of inputs that the function gets as arrays, which is what decides shapes;
    ALL of them for an operator that runs on the host. `wants` names what else it gets: "outputs",
    the number of results that the node names; "graph", a function that runs a graph in the scope of
    the node.
    """

    function: Function
    host: tuple[int, ...] = ()
    wants: tuple[str, ...] = ()


ALL = tuple(range(100))

Rows = Function | Row
Table = Mapping[str, Rows | Mapping[int, Rows]]
"""Rows by operator; a function alone takes tensors. By version, where the meaning changed, under
the first one that has it."""


def on_host(function: Function) -> Row:
    """A row of a function of arrays alone."""
    return Row(function, ALL)


def row_for(table: Table, operator: str, version: int) -> Row | None:
    """The row that holds in a version of the operator set, if there is one."""
    found = table.get(operator)
    if isinstance(found, Mapping):
        found = found.get(max((since for since in found if since <= version), default=0))
    return found if found is None or isinstance(found, Row) else Row(found)


def one(value: Any) -> Any:
    """The first element of what the host knows, as a number of Python."""
    return np.asarray(value).reshape(-1)[0].item()
