"""The CORE device of the tests: the interpreter, with no op but those that every backend writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tinygrad.backends.interface import Backend
from tinygrad.backends.interpreter.renderer import PythonRenderer
from tinygrad.backends.interpreter.runtime import PythonCompiler, PythonMemory, PythonQueue
from tinygrad.base.target import Target
from tinygrad.uop.instructions import CORE
from tinygrad.uop.node import UOp

DTYPES = frozenset(
    (
        "bool",
        *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
        "float32",
        "float64",
    )
)
TARGET = Target("CORE", vector=0, dtypes=DTYPES, storage_dtypes=DTYPES)


class CoreRenderer(PythonRenderer):
    """The interpreter's renderer, of core programs only."""

    def render(self, name: str, program: Sequence[UOp]) -> str:
        beyond = {node.op.name for node in program} - {op.name for op in CORE}
        assert not beyond, f"a target that names no op beyond the core got {sorted(beyond)}"
        assert all(node.dtype.count == 1 for node in program), "it has no vectors"
        return super().render(name, program)


def open_device(index: int = 0, cache: Any = None) -> Backend:
    return Backend(TARGET, CoreRenderer(), PythonCompiler(), PythonMemory(), PythonQueue())
