"""Matrix units as data: what one instruction multiplies, and how its operands are laid out. A
recipe picks a row that fits a nest, codegen lays out the operands as the row says, and the renderer
knows the instruction by the row's name. Nothing else knows these machines.

A Target has the rows whose feature it names. The rows of processors are in this file; another
backend registers its own when its device is opened (`register`).

Floats are given to a unit as their bits: an unsigned integer of the same size."""

from __future__ import annotations

from dataclasses import dataclass

from tinygrad.base.dtype import DType, dtypes
from tinygrad.base.errors import ArgumentError
from tinygrad.base.target import Target

Part = tuple[str, int, int]
"""(name, size, stride): a digit of an index. With stride 0 it counts elements that a lane holds,
else it is a digit of the lane's number in its warp."""


@dataclass(frozen=True)
class Fragments:
    """How the lanes of a warp hold the matrices of a unit that all of them execute together.

    An index along an axis is composed of its parts, slowest first. `rows` and `columns` are the
    parts of the result's axes, `depth` those of the axis that both operands share; `a` and `b` are
    the other axes of the operands. The names in `a_items`, `b_items` and `out_items` are the
    elements that a lane holds, in order. Operands are given as 32-bit words; or lanes hold none of
    them, and the unit reads LOCAL memory itself (`MatrixUnit.is_staged`).
    """

    rows: tuple[Part, ...]
    columns: tuple[Part, ...]
    depth: tuple[Part, ...]
    a: tuple[Part, ...]
    b: tuple[Part, ...]
    a_items: tuple[str, ...]
    b_items: tuple[str, ...]
    out_items: tuple[str, ...]

    @property
    def items(self) -> tuple[str, ...]:
        """All loops over what a lane holds: those of the result, then those along the depth. If the
        unit reads operands itself, all loops that it runs over."""
        if not self.a_items:
            return tuple(name for name, *_ in (*self.rows, *self.columns, *self.depth))
        inside = (name for name, _, stride in self.depth if not stride)
        return (*self.out_items, *inside)


@dataclass(frozen=True)
class MatrixUnit:
    """out[rows, columns] += a[rows, depth] * b[depth, columns].

    `feature` must be among the target's features or native facts. Memory order, unless lanes hold
    the operands together: a is [rows][depth]; b is [depth / pack][columns][pack], so that `pack`
    neighbours along depth are adjacent (VNNI order); out is [rows][columns]. With one row, a may
    also be given for each column: [columns][depth].
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
    lanes: int = 1  # of the warp that executes it
    held: Fragments | None = None  # by those lanes

    @property
    def inside(self) -> list[int]:
        """The sizes of the loops along the sum that run inside one instruction: over words, and
        within a word. Loops of one turn are left out. Empty if lanes hold the operands."""
        if self.held is not None:
            return []
        return [size for size in (self.depth // self.pack, self.pack) if size > 1]

    @property
    def is_staged(self) -> bool:
        """Whether the unit reads its operands from LOCAL memory itself, where they lie in rows of
        ROW bytes (`codegen/addresses`). It runs asynchronously: the lanes must wait before they use
        a sum. Elements of two bytes may lie along either axis."""
        return self.held is not None and not self.held.a_items

    @property
    def is_tile(self) -> bool:
        """Whether operands and result live in tile registers, which can only be loaded and stored
        whole."""
        return self.rows > 1 and self.lanes == 1


_BF, _HF, _F = dtypes.bfloat16, dtypes.float16, dtypes.float32
_I8, _U8, _I16, _I = dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.int32


def _mma(pack: int) -> Fragments:
    """NVIDIA's layout (PTX ISA, "Matrix Fragments for mma.m16n8k16"): a lane's number is 4*g + t.
    Along the depth it has `pack` neighbours in each of two words."""
    neighbours: tuple[Part, ...] = (("p", pack, 0),) if pack > 1 else ()
    last = tuple(name for name, _, _ in neighbours)
    rows: tuple[Part, ...] = (("i", 2, 0), ("g", 8, 4))
    return Fragments(
        rows=rows,
        columns=(("t", 4, 1), ("e", 2, 0)),
        depth=(("j", 2, 0), ("t", 4, 1), *neighbours),
        a=rows,
        b=(("g", 8, 4),),
        a_items=("j", "i", *last),
        b_items=("j", *last),
        out_items=("i", "e"),
    )


def _amd(rows: tuple[Part, ...], depth: tuple[Part, ...]) -> Fragments:
    """AMD's layouts (ISA documents of CDNA 3, RDNA 3 and 4). A lane has a row of a and a column of
    b, both numbered by its last four bits, and along the depth the elements `p` of words `w`. Of
    the result it has one column, and the rows that the rest of its number and its items give."""
    return Fragments(
        rows=rows,
        columns=(("c", 16, 1),),
        depth=depth,
        a=(("r", 16, 1),),
        b=(("c", 16, 1),),
        a_items=("w", "p"),
        b_items=("w", "p"),
        out_items=tuple(name for name, _, stride in rows if not stride),
    )


def _wgmma(columns: int, depth: int) -> Fragments:
    """NVIDIA's layout for four warps (PTX ISA, "Register Fragments for wgmma.mma_async"): warp w
    has 16 rows, laid out as in `_mma`; operands are staged in blocks of 64."""
    return Fragments(
        rows=(("w", 4, 32), ("i", 2, 0), ("g", 8, 4)),
        columns=(("h", columns // 64, 0), ("c", 8, 0), ("t", 4, 1), ("e", 2, 0)),
        depth=(("k", depth, 0),),
        a=(),
        b=(),
        a_items=(),
        b_items=(),
        out_items=("h", "c", "i", "e"),
    )


_MFMA = _amd((("h", 4, 16), ("d", 2, 0), ("e", 2, 0)), (("h", 4, 16), ("w", 2, 0), ("p", 2, 0)))
_WMMA = _amd((("e", 8, 0), ("h", 2, 16)), (("w", 8, 0), ("p", 2, 0)))
_WMMA12 = _amd((("h", 2, 16), ("d", 4, 0), ("e", 2, 0)), (("h", 2, 16), ("w", 4, 0), ("p", 2, 0)))

ROWS: tuple[MatrixUnit, ...] = (
    # x86 tiles: 16 rows of 64 bytes
    MatrixUnit("tdpbf16ps", "amx-bf16", _BF, _BF, _F, 16, 16, 32, 2),
    MatrixUnit("tdpfp16ps", "amx-fp16", _HF, _HF, _F, 16, 16, 32, 2),
    MatrixUnit("tdpbssd", "amx-int8", _I8, _I8, _I, 16, 16, 64, 4),
    MatrixUnit("tdpbusd", "amx-int8", _U8, _I8, _I, 16, 16, 64, 4),
    MatrixUnit("tdpbsud", "amx-int8", _I8, _U8, _I, 16, 16, 64, 4),
    MatrixUnit("tdpbuud", "amx-int8", _U8, _U8, _I, 16, 16, 64, 4),
    # x86 vectors of 64 and of 32 bytes: one row
    MatrixUnit("vdpbf16ps", "avx512bf16", _BF, _BF, _F, 1, 16, 2, 2),
    MatrixUnit("vpdpbusd", "avx512vnni", _U8, _I8, _I, 1, 16, 4, 4),
    MatrixUnit("vpdpwssd", "avx512vnni", _I16, _I16, _I, 1, 16, 2, 2),
    MatrixUnit("vpdpbusd.256", "avxvnni", _U8, _I8, _I, 1, 8, 4, 4),
    MatrixUnit("vpdpwssd.256", "avxvnni", _I16, _I16, _I, 1, 8, 2, 2),
    # a warp of 32 lanes
    MatrixUnit("mma.bf16", "mma", _BF, _BF, _F, 16, 8, 16, 2, 32, _mma(2)),
    MatrixUnit("mma.f16", "mma", _HF, _HF, _F, 16, 8, 16, 2, 32, _mma(2)),
    MatrixUnit("mma.s8", "mma", _I8, _I8, _I, 16, 8, 32, 4, 32, _mma(4)),
    MatrixUnit("mma.u8", "mma", _U8, _U8, _I, 16, 8, 32, 4, 32, _mma(4)),
    MatrixUnit("mfma.bf16", "mfma", _BF, _BF, _F, 16, 16, 16, 2, 64, _MFMA),
    MatrixUnit("mfma.f16", "mfma", _HF, _HF, _F, 16, 16, 16, 2, 64, _MFMA),
    MatrixUnit("wmma.bf16", "wmma", _BF, _BF, _F, 16, 16, 16, 2, 32, _WMMA),
    MatrixUnit("wmma.f16", "wmma", _HF, _HF, _F, 16, 16, 16, 2, 32, _WMMA),
    MatrixUnit("wmma12.bf16", "wmma12", _BF, _BF, _F, 16, 16, 16, 2, 32, _WMMA12),
    MatrixUnit("wmma12.f16", "wmma12", _HF, _HF, _F, 16, 16, 16, 2, 32, _WMMA12),
    MatrixUnit("mma.tf32", "mma_tf32", _F, _F, _F, 16, 8, 8, 1, 32, _mma(1)),
    # four warps; operands all have the same number of rows, results have several sizes
    *(
        MatrixUnit(f"wgmma.{kind}.{n}", feature, a, a, out, 64, n, depth, 1, 128, _wgmma(n, depth))
        for kind, feature, a, out, depth in (
            ("bf16", "wgmma", _BF, _F, 16),
            ("f16", "wgmma", _HF, _F, 16),
            ("s8", "wgmma", _I8, _I, 32),
            ("u8", "wgmma", _U8, _I, 32),
            ("tf32", "wgmma_tf32", _F, _F, 8),
        )
        for n in (256, 128, 64)
    ),
)
UNITS: dict[str, MatrixUnit] = {row.name: row for row in ROWS}

SHIFTED = {dtypes.int8: dtypes.uint8}
"""Signed types that are converted for a row which takes a as unsigned: see `tensorise`."""


def register(unit: MatrixUnit) -> None:
    """Adds a row: recipes, codegen and the interpreter then know its name. ArgumentError if another
    unit has the name, or if words don't divide its depth."""
    if unit.depth % unit.pack or min(unit.rows, unit.columns, unit.depth) < 1:
        raise ArgumentError(f"matrix unit {unit}: legal is a depth that `pack` divides")
    known = UNITS.setdefault(unit.name, unit)
    if known != unit:
        raise ArgumentError(f"matrix unit {unit.name!r} is there already: {known}")


def matrix_units(target: Target, a: DType, b: DType, out: DType) -> list[MatrixUnit]:
    """The units that the target has for these operands, the largest first; those that take `a` as
    it is come before those that need it shifted."""
    has = {part.removeprefix("+") for part in target.features.split(",")} | target.native
    warp = target.warp
    exact, shifted = [], []
    for row in UNITS.values():
        fits_warp = row.lanes == 1 or (warp and row.lanes % warp == 0)
        if row.feature not in has or not fits_warp or (row.b, row.out) != (b, out):
            continue
        if row.a is a:
            exact.append(row)
        elif row.a is SHIFTED.get(a):
            shifted.append(row)
    return exact + shifted
