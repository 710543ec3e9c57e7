"""A hash of bytes, as tensor operations."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import DTypeError
from tinygrad.base.helpers import prod
from tinygrad.tensor.arguments import check_choice
from tinygrad.tensor.long_tail.decomposition import Decomposition

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


class Hashing(Decomposition):
    """Hashes."""

    __slots__ = ()

    def keccak(self, cfg: str | tuple[int, int] = "sha3_256") -> Self:
        """The hash of the bytes along the last axis, as uint8. (FIPS 202.)

        `cfg`: sha3_224, sha3_256, sha3_384, sha3_512, shake_128, or (bytes a block, last byte).

        >>> bytes(Tensor(b"abc").keccak().tolist()).hex()[:8]
        '3a985da7'
        """
        if isinstance(cfg, str):
            check_choice("keccak", "cfg", cfg, KECCAK)
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
