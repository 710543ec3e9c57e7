"""Matrix units as data: what one instruction multiplies, and how its operands lie. A lookup names
the row; nothing else knows these machines."""

from __future__ import annotations

from dataclasses import dataclass

from tinygrad.base.dtype import DType, dtypes
from tinygrad.base.target import Target


@dataclass(frozen=True)
class MatrixUnit:
    """out[rows, columns] += a[rows, depth] * b[depth, columns].

    `feature` must be in the target's features. `pack`: so many neighbours along depth lie together
    in b (VNNI order). `lanes`: threads that hold one tile together (1: a CPU's register or tile).
    """

    name: str
    feature: str
    a: DType
    b: DType
    out: DType
    rows: int
    columns: int
    depth: int
    pack: int
    lanes: int = 1


_D = dtypes

ROWS: tuple[MatrixUnit, ...] = (
    # x86 tiles: 16 rows of 64 bytes
    MatrixUnit("tdpbf16ps", "amx-bf16", _D.bfloat16, _D.bfloat16, _D.float32, 16, 16, 32, 2),
    MatrixUnit("tdpfp16ps", "amx-fp16", _D.float16, _D.float16, _D.float32, 16, 16, 32, 2),
    MatrixUnit("tdpbssd", "amx-int8", _D.int8, _D.int8, _D.int32, 16, 16, 64, 4),
    MatrixUnit("tdpbusd", "amx-int8", _D.uint8, _D.int8, _D.int32, 16, 16, 64, 4),
    # x86 vectors: one row, 16 columns
    MatrixUnit("vdpbf16ps", "avx512bf16", _D.bfloat16, _D.bfloat16, _D.float32, 1, 16, 2, 2),
    MatrixUnit("vpdpbusd", "avx512vnni", _D.uint8, _D.int8, _D.int32, 1, 16, 4, 4),
    MatrixUnit("vpdpwssd", "avx512vnni", _D.int16, _D.int16, _D.int32, 1, 16, 2, 2),
    MatrixUnit("vpdpbusd256", "avxvnni", _D.uint8, _D.int8, _D.int32, 1, 8, 4, 4),
    # Arm vectors of 128 bits
    MatrixUnit("bfmmla", "bf16", _D.bfloat16, _D.bfloat16, _D.float32, 2, 2, 4, 4),
    MatrixUnit("smmla", "i8mm", _D.int8, _D.int8, _D.int32, 2, 2, 8, 8),
    MatrixUnit("ummla", "i8mm", _D.uint8, _D.uint8, _D.int32, 2, 2, 8, 8),
    MatrixUnit("sdot", "dotprod", _D.int8, _D.int8, _D.int32, 1, 4, 4, 4),
    # a warp of 32 lanes
    MatrixUnit("m16n8k16.bf16", "sm_80", _D.bfloat16, _D.bfloat16, _D.float32, 16, 8, 16, 2, 32),
    MatrixUnit("m16n8k16.f16", "sm_80", _D.float16, _D.float16, _D.float32, 16, 8, 16, 2, 32),
    MatrixUnit("m16n8k32.s8", "sm_80", _D.int8, _D.int8, _D.int32, 16, 8, 32, 4, 32),
    MatrixUnit("m16n8k32.e4m3", "sm_89", _D.fp8e4m3, _D.fp8e4m3, _D.float32, 16, 8, 32, 4, 32),
    MatrixUnit("simdgroup", "metal", _D.float32, _D.float32, _D.float32, 8, 8, 8, 1, 32),
    MatrixUnit("wmma.bf16", "gfx1100", _D.bfloat16, _D.bfloat16, _D.float32, 16, 16, 16, 16, 32),
    MatrixUnit("mfma.bf16", "gfx942", _D.bfloat16, _D.bfloat16, _D.float32, 16, 16, 16, 4, 64),
)


def matrix_unit(target: Target, a: DType, b: DType, out: DType) -> MatrixUnit | None:
    """The first row that the target has for these operands; None if it has none."""
    has = {part.removeprefix("+") for part in target.features.split(",")} | {target.cpu}
    for row in ROWS:
        if row.feature in has and (row.a, row.b, row.out) == (a, b, out):
            return row
    return None
