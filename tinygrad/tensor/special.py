"""The long tail that has names of its own: decompositions by the host's LAPACK, and a hash.

The decompositions are CALLs: they run in NumPy whatever the device, and have no gradient yet:
asking for one is an error.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from tinygrad.base.dtype import DType, dtypes, least_upper_float
from tinygrad.base.errors import ArgumentError, DTypeError, ShapeError
from tinygrad.base.helpers import prod
from tinygrad.engine.host import HostFunction, call, register
from tinygrad.tensor.learning import Learning

Described = tuple[tuple[int, ...], DType]

# ---- what the host does --------------------------------------------------------------------------


def _qr_shapes(matrix: Described) -> list[Described]:
    (*lead, rows, columns), kind = matrix
    return [((*lead, rows, rows), kind), ((*lead, rows, columns), kind)]


def _svd_shapes(matrix: Described, full: int) -> list[Described]:
    (*lead, rows, columns), kind = matrix
    least = min(rows, columns)
    outer = ((rows, rows), (columns, columns)) if full else ((rows, least), (least, columns))
    return [((*lead, *outer[0]), kind), ((*lead, least), kind), ((*lead, *outer[1]), kind)]


QR = register(HostFunction("qr", lambda a: np.linalg.qr(a, mode="complete"), _qr_shapes))
SVD = register(HostFunction("svd", lambda a, full: np.linalg.svd(a, bool(full)), _svd_shapes))

# ---- Keccak (FIPS 202): bytes that a block takes, and the byte that ends a message ---------------

KECCAK = {
    "sha3_224": (144, 0x06),
    "sha3_256": (136, 0x06),
    "sha3_384": (104, 0x06),
    "sha3_512": (72, 0x06),
    "shake_128": (168, 0x1F),
}
_ROUNDS = 24


def _keccak_tables() -> tuple[list[int], list[int], list[int]]:
    """Rotations of the 25 lanes, where each lane comes from, and the constant of each round."""
    rotations, sources = [0] * 25, [0] * 25
    x, y = 1, 0
    for t in range(_ROUNDS):
        rotations[x + 5 * y] = (t + 1) * (t + 2) // 2 % 64
        x, y = y, (2 * x + 3 * y) % 5
    for lane in range(25):
        x, y = lane % 5, lane // 5
        sources[y + 5 * ((2 * x + 3 * y) % 5)] = lane
    constants, register_ = [], 1
    for _ in range(_ROUNDS):
        constant = 0
        for j in range(7):
            constant |= (register_ & 1) << ((1 << j) - 1)
            register_ = (register_ << 1) ^ (0x171 if register_ >> 7 else 0)
        constants.append(constant)
    return rotations, sources, constants


class Special(Learning):
    """Decompositions and hashes."""

    __slots__ = ()

    def _matrix(self, operation: str) -> Self:
        if self.ndim < 2:
            raise ShapeError(f"{operation}: {self.shape}; legal are two axes or more")
        kind = least_upper_float(self.dtype)
        return self.cast(kind if kind.itemsize >= 4 else dtypes.float32)

    def qr(self) -> tuple[Self, Self]:
        """Q with orthonormal columns, square, and R upper triangular, with self = Q @ R.

        >>> q, r = Tensor([[1.0, 0.0], [0.0, 1.0]]).qr()
        >>> (q @ r).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
        """
        x = self._matrix("qr")
        q, r = call(QR, x._node)
        return x._from(q), x._from(r)

    def svd(self, full_matrices: bool = True) -> tuple[Self, Self, Self]:
        """U, S and V with self = U @ diag(S) @ V; S falls, U and V are orthogonal, square if
        `full_matrices`.

        >>> Tensor([[3.0, 0.0], [0.0, 4.0]]).svd()[1].tolist()
        [4.0, 3.0]
        """
        x = self._matrix("svd")
        u, s, v = call(SVD, x._node, parameters=(int(full_matrices),))
        return x._from(u), x._from(s), x._from(v)

    def keccak(self, cfg: str | tuple[int, int] = "sha3_256") -> Self:
        """The hash of the bytes along the last axis, as uint8. (FIPS 202.)

        `cfg`: sha3_224, sha3_256, sha3_384, sha3_512, shake_128, or (bytes a block, last byte).

        >>> bytes(Tensor(b"abc").keccak().tolist()).hex()[:8]
        '3a985da7'
        """
        if isinstance(cfg, str) and cfg not in KECCAK:
            raise ArgumentError(f"keccak: {cfg!r}; legal are {', '.join(KECCAK)}")
        if self.dtype is not dtypes.uint8 or not self.ndim:
            raise DTypeError(f"keccak: {self.dtype!r} of {self.shape}; legal are uint8 on an axis")
        rate, ending = KECCAK[cfg] if isinstance(cfg, str) else cfg
        *lead, size = self.shape
        total = (size // rate + 1) * rate
        end = np.zeros(total, np.uint8)
        end[size] ^= ending
        end[-1] ^= 0x80
        count = prod(lead)
        x = self.reshape((count, size)).pad((0, total - size)) ^ self._tensor(end)
        blocks = (
            x.reshape((-1, total // rate, rate)).pad((0, 200 - rate)).reshape((-1, 200 // 8, 8))
        )
        places = self._counting(8, self.device, dtypes.uint64) * 8
        lanes = (blocks.reshape((-1, 25, 8)).cast(dtypes.uint64) << places).sum(-1)
        lanes = lanes.reshape((count, total // rate, 25))
        state = lanes.zeros_like()._cut(1, 0, 1).squeeze(1)
        for block in lanes.unbind(1):
            state = _keccak_rounds(state ^ block)
        parts = (state.unsqueeze(-1) >> places).cast(dtypes.uint8)
        out = parts.reshape((-1, 200))._cut(1, 0, (200 - rate) // 2)
        return out.reshape((*lead, (200 - rate) // 2))


def _keccak_rounds(state: Any) -> Any:
    """24 rounds on 25 lanes of 64 bits: (N, 25) → (N, 25)."""
    rotations, sources, constants = _keccak_tables()
    turns = state._tensor(np.array(rotations, np.uint64))
    order = state._tensor(np.array(sources, np.int32))
    for constant in constants:
        rows = state.reshape((-1, 5, 5)).unbind(1)  # by y, each (N, x)
        column = rows[0] ^ rows[1] ^ rows[2] ^ rows[3] ^ rows[4]
        mixed = column.roll(1, 1) ^ _rotated(column.roll(-1, 1), 1)
        state = (state.reshape((-1, 5, 5)) ^ mixed.unsqueeze(1)).reshape((-1, 25))
        moved = _rotated(state, turns).contiguous()[:, order].reshape((-1, 5, 5))
        state = moved ^ (~moved.roll(-1, 2) & moved.roll(-2, 2))
        first = state._tensor(np.array([constant] + [0] * 24, np.uint64))
        state = (state.reshape((-1, 25)) ^ first).contiguous()
    return state


def _rotated(x: Any, turns: Any) -> Any:
    return (x << turns) | (x >> (64 - turns))
