"""What DEBUG shows of the way from graph to machine code."""

from __future__ import annotations

import sys
from typing import Any

from tinygrad.backends.c_family import CRenderer
from tinygrad.base.settings import DEBUG
from tinygrad.codegen.pipeline import Lowered, Phase
from tinygrad.engine.devices import OpenDevice
from tinygrad.schedule.plan import Plan


def _print(*lines: Any) -> None:
    print(*lines, sep="\n", file=sys.stderr)


def show_plan(made: Plan) -> None:
    """At DEBUG=5: each kernel's graph."""
    if DEBUG >= 5:
        for number, step in enumerate(made.steps):
            _print(f"--- step {number}: {step.op!r} on storages {step.storages}", step.ast)


def show_lowered(lowered: Lowered, recipe: Any) -> None:
    """At DEBUG=3: the kernel's name, its recipe and its loop trees."""
    if DEBUG >= 3:
        _print(f"--- {lowered.colored}", "recipe:", recipe)
        for phase in lowered.phases:
            _print(phase.nest)


def show_phase(phase: Phase, source: str) -> None:
    """At DEBUG=4 the kernel as C, which is the readable view, and its source if that is not C;
    at DEBUG=6 the linear program."""
    if DEBUG >= 4:
        readable = CRenderer().render(phase.name, phase.program)
        _print(readable)
        if readable != source:
            _print(source)
    if DEBUG >= 6:
        _print(
            *(
                f"{i:4d} {node.op.name} {node.dtype} {node.arg}"
                for i, node in enumerate(phase.program)
            )
        )


def show_assembly(device: OpenDevice, source: str, binary: bytes) -> None:
    """At DEBUG=7: machine code."""
    if DEBUG >= 7:
        _print(device.compiler.disassemble(binary))
