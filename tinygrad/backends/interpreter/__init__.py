"""The PYTHON device: the judge of all others, and the page to read before writing a backend.

A backend is four small parts, and here each is as small as it can be:

    renderer    linear program → source: a Python function, one line an instruction
    operations  what the lines call: the op table's meanings, rounded to each dtype; loads, stores
    runtime     compiler (checks the source), memory (bytearrays), queue (calls the function)

Every operation does what `uop/op.py` says, one element at a time, and rounds to its own dtype; a
device that differs from this one is wrong, or says so in its `Target.numerics`. It computes every
dtype and every op natively, so nothing that it runs was taken apart by
`codegen/numbers/decompose`, which is thereby judged too. Memory that nobody wrote holds NaN, and an
index outside a buffer raises.
"""

from __future__ import annotations

from typing import Any

from tinygrad.backends.interface import Backend
from tinygrad.backends.interpreter.runtime import PythonCompiler, PythonMemory, PythonQueue
from tinygrad.base.dtype import INVERSE_NAMES
from tinygrad.base.later import later
from tinygrad.base.target import ORDINARY, Target
from tinygrad.uop.op import GroupOp

__all__ = ["TARGET", "open_device"]

DTYPES = frozenset((*INVERSE_NAMES, "fp8e4m3", "fp8e5m2"))
TARGET = Target(
    device="PYTHON",
    vector=0,
    dtypes=DTYPES,
    storage_dtypes=DTYPES,
    native=ORDINARY | {"PICK", "CAST_HALF", *(op.name for op in GroupOp.ALU)},
)


def open_device(index: int = 0, cache: Any = None) -> Backend:
    """The interpreter; every index is one of its own."""
    renderer = later("tinygrad.backends.interpreter.renderer", "PythonRenderer")
    return Backend(TARGET, renderer, PythonCompiler(), PythonMemory(), PythonQueue())
