"""Tensor maps: what the engine that copies boxes is told of a buffer. The driver's library writes
their 128 bytes, which are arguments of a kernel; another address means another map."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from tinygrad.backends.cuda.device import Connection
from tinygrad.backends.cuda.driver import Pointer
from tinygrad.backends.interface import TensorView

BYTES, ALIGNED = 128, 64
KINDS = {1: 0, 2: 1, 4: 2}  # CUtensorMapDataType of unsigned integers by size: bits are copied
PLAIN, ROWS_OF_128, SECTORS_256 = 0, 3, 3  # no interleaving; swizzle; what the L2 cache fetches
ZEROS = 0  # what lies beyond the tensor
Int, Uint = ctypes.c_int, ctypes.c_uint
ARGUMENTS = (Pointer, Int, Uint, *(Pointer,) * 5, *(Int,) * 4)


class TensorMaps:
    """Those of one launch, at addresses that stay."""

    def __init__(self, connection: Connection, views: Sequence[TensorView]) -> None:
        self.connection, self.views = connection, views
        self.room = (ctypes.c_uint8 * (BYTES * len(views) + ALIGNED))()
        first = -(-ctypes.addressof(self.room) // ALIGNED) * ALIGNED
        self.places = [first + BYTES * i for i in range(len(views))]

    def fill(self, buffers: Sequence[int]) -> None:
        """Writes the maps for buffers at these addresses."""
        for place, view in zip(self.places, self.views, strict=True):
            self._encode(place, buffers[view.buffer], view)

    def _encode(self, place: int, address: int, view: TensorView) -> None:
        rank = len(view.sizes)
        wide, narrow = ctypes.c_uint64, ctypes.c_uint32
        sizes = (wide * rank)(*view.sizes)
        strides = (wide * (rank - 1))(*(step * view.itemsize for step in view.strides))
        box, steps = (narrow * rank)(*view.box), (narrow * rank)(*[1] * rank)
        kind = KINDS[view.itemsize]
        how = PLAIN, ROWS_OF_128, SECTORS_256, ZEROS
        encode = self.connection.driver.declared("cuTensorMapEncodeTiled", ARGUMENTS)
        code = encode(place, kind, rank, address, sizes, strides, box, steps, *how)
        if code:
            raise self.connection.failure(code, f"describe a buffer at {address} as {view}")
