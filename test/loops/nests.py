"""The recipes and loop nests of a few kernels, for a machine with large vectors, one with small
ones, and one with groups of lanes. `test_nests` compares them with `nests.txt`; what the heuristic
does is changed on purpose or not at all. After a change on purpose:

    python test/loops/nests.py > test/loops/nests.txt
"""

import sys
from collections.abc import Iterator
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from loops import kernels

from tinygrad.base.target import Target
from tinygrad.codegen.pipeline import lower
from tinygrad.loops.heuristic import schedule
from tinygrad.loops.recipe import to_text
from tinygrad.uop.node import UOp

NATIVE = frozenset(("MULACC", "MAX", "SQRT", "RECIP", "FDIV", "CMPEQ", "SHL", "SHR", "TRUNC"))
DTYPES = frozenset(("bool", "int32", "int64", "uint32", "uint64", "float32", "float64"))
COMMON = {"triple": "x86_64-unknown-linux-gnu", "native": NATIVE, "dtypes": DTYPES}

MACHINES = {
    "64-byte vectors": Target("CPU", vector=64, registers=32, cache_l2=1 << 20, **COMMON),
    "32-byte vectors": Target("CPU", vector=32, registers=16, cache_l2=1 << 20, **COMMON),
}
UNITS = frozenset(("mma", "async_copy", "matrix_load"))
GROUPS = Target(
    "GPU",
    vector=16,
    registers=255,
    has_groups=True,
    group_limit=1024,
    warp=32,
    aligned=True,
    local_memory=160 << 10,
    native=NATIVE | UNITS,
    dtypes=DTYPES,
)
GROUP_KERNELS = {
    "matrix product 1024x1000x1024": kernels.matmul(1024, 1000, 1024),
    "matrix product 4096x4096x4096 of bfloat16": kernels.wide_matmul(4096, 4096, 4096),
    "convolution 3x3, 8x64x56x56 to 64": kernels.conv(8, 64, 56, 56, 64),
    "softmax 4096x4096": kernels.softmax(4096, 4096),
    "transposition 4096x4096": kernels.transpose(4096, 4096),
    "sums of columns 4096x4096": kernels.total(4096, 4096, 0),
    "sum of 1024": kernels.whole_sum(1024),
}
KERNELS = {
    "matrix product 512x512x512": kernels.matmul(512, 512, 512),
    "A.T @ B, 500x300x200": kernels.matmul(500, 300, 200, a_t=True),
    "A @ B.T, 500x300x200": kernels.matmul(500, 300, 200, b_t=True),
    "convolution 3x3, 8x64x56x56 to 64": kernels.conv(8, 64, 56, 56, 64),
    "softmax 4096x4096": kernels.softmax(4096, 4096),
    "transposition 4096x4096": kernels.transpose(4096, 4096),
    "sums of rows 4096x4096": kernels.total(4096, 4096, 1),
    "sums of columns 65536x256": kernels.total(65536, 256, 0),
    "states of blocks, 16x512 of 2048": kernels.states(16, 512, 2048),
    "causal attention 8x1024x64": kernels.attention(8, 1024, 64),
}


def sections() -> Iterator[str]:
    """One text for each kernel on each machine."""
    for title, kernel in KERNELS.items():
        for machine, target in MACHINES.items():
            yield section(title, kernel, machine, target)
    for title, kernel in GROUP_KERNELS.items():
        yield section(title, kernel, "groups of lanes", GROUPS)


def section(title: str, kernel: UOp, machine: str, target: Target) -> str:
    """Recipe and nests of one kernel."""
    scheduled, recipe = schedule(kernel, target)
    phases = lower(scheduled, target).phases
    nests = "\n\n".join(phase.nest for phase in phases)
    return f"=== {title}, {machine}\n{to_text(recipe)}\n\n{nests}\n"


def text() -> str:
    """All of it."""
    return "\n".join(sections())


if __name__ == "__main__":
    print(text(), end="")
