"""What each backend that is not here would be given: a few kernels, of each the source in its
language. `test_golden` compares them with the files in `golden/`; a change there is made on
purpose or not at all. After one on purpose:

    python test/backends/golden.py
"""

import sys
from collections.abc import Iterator
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from backends.absent import MACHINES

from tinygrad import Tensor, dtypes
from tinygrad.codegen.pipeline import lower
from tinygrad.engine.making import plan_of
from tinygrad.engine.structure import structure_of
from tinygrad.loops.heuristic import schedule
from tinygrad.uop.op import Ops

FOLDER = Path(__file__).parent / "golden"


def empty(*shape, dtype=dtypes.float32):
    return Tensor.empty(*shape, dtype=dtype, device="NULL")


def expressions() -> dict[str, Tensor]:
    """Each a kernel (or a few) by what it shows of a language."""
    x, y = empty(512, 1024), empty(512, 1024)
    return {
        "vectors": (x * y + x).relu(),
        "product": empty(64, 96) @ empty(96, 80),
        "softmax": empty(8, 600).softmax(),
        "half": empty(33, 7, dtype=dtypes.float16).exp() * 2,
        "bfloat16": empty(1000, dtype=dtypes.bfloat16) + 1,
        "whole_numbers": empty(300, dtype=dtypes.int64) // 7 + empty(300, dtype=dtypes.int64),
        "choice": (empty(77) < 0).where(empty(77), 1.5) != 2,
        "check": empty(50)[empty(9, dtype=dtypes.int32)],
    }


def phases(expression: Tensor, target) -> Iterator:
    """The functions that compute it on `target`."""
    structure = structure_of([expression._node])
    for step in plan_of(structure.sink, ["NULL"]).steps:
        if step.ast is not None and step.ast.op is Ops.SINK:
            yield from lower(schedule(step.ast, target)[0], target).phases


def sources() -> Iterator[tuple[str, str]]:
    """(file, text) of everything."""
    wanted = expressions()
    for machine, (target, renderer) in MACHINES.items():
        for name, expression in wanted.items():
            texts = [
                renderer.render(phase.name, phase.program) for phase in phases(expression, target)
            ]
            yield f"{machine}/{name}.txt", "\n".join(texts)


if __name__ == "__main__":
    for file, text in sources():
        path = FOLDER / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
