"""Tensors on devices that hold bytes and run no kernels: NumPy's arrays (NPY) and files (DISK).

Views of them are views for NumPy too, so nothing is copied before somebody reads. On the way to
another device only what the view shows goes there: a device that addresses the host's memory
borrows a file's mapped bytes, any other gets a copy, piece by piece. A write is done at once. Who
read the old bytes keeps them: expressions that wait are computed first, and what was borrowed is
copied.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygrad.backends import keeps
from tinygrad.backends.disk import DiskFile, Region
from tinygrad.base.dtype import DType
from tinygrad.base.errors import DTypeError, JitError, ShapeError
from tinygrad.engine.aliases import bottom_of, on_bottom
from tinygrad.engine.alive import Alive
from tinygrad.engine.devices import Device
from tinygrad.engine.faults import raise_faults
from tinygrad.engine.realize import before_overwriting, capturing, read, realize, whole_buffer
from tinygrad.engine.storage import HOST, Buffer, bind, borrowed, buffer_of, latest, note_change
from tinygrad.engine.turns import keeping, turns
from tinygrad.engine.views import shown, whole_array
from tinygrad.uop.node import UOp

Array = NDArray[Any]


def workplace(device: str) -> str:
    """The device on which a value for `device` is computed: that one, else the default device, else
    the CPU."""
    return next(name for name in (device, Device.DEFAULT, "CPU") if not keeps(name))


# ---- opening files -------------------------------------------------------------------------------


def tensor_of_file(path: str, count: int, dtype: DType) -> UOp:
    """`count` elements at the beginning of the file at `path`, which is created if missing."""
    return _in_file(DiskFile.open(path, max(1, count * dtype.itemsize)), 0, count, dtype)


def whole_file(path: str | os.PathLike[str], dtype: DType) -> UOp:
    """All of an existing file. ShapeError if its size is no multiple of the element size."""
    file = DiskFile.open(os.path.abspath(os.fspath(path)))
    count, rest = divmod(file.size, dtype.itemsize)
    if rest:
        raise ShapeError(
            f"Tensor: file {file.path!r} has {file.size:,} bytes, an element of {dtype!r} "
            f"{dtype.itemsize}; legal is a multiple of them"
        )
    return _in_file(file, 0, count, dtype)


def _in_file(file: DiskFile, start: int, count: int, dtype: DType) -> UOp:
    device = f"DISK:{file.path}"
    if not count:
        return UOp.const(dtype, 0, device).broadcast_to((0,))
    buffer = Buffer(device, count * dtype.itemsize, Region(file, start))
    return bind(UOp.new_buffer(device, count, dtype), _among_readers(buffer, file))


_readers: weakref.WeakKeyDictionary[Any, Alive[Buffer]] = weakref.WeakKeyDictionary()
"""For each file, and each buffer that owns an array, the buffers that show parts of it."""


def _owner(buffer: Buffer) -> Any:
    while isinstance(buffer.owner, Buffer):
        buffer = buffer.owner
    return buffer.handle.file if isinstance(buffer.handle, Region) else buffer


def _among_readers(buffer: Buffer, owner: Any) -> Buffer:
    """`buffer`, which is notified before its bytes change. Others may write them, too: tensors of
    the same file, and other programs."""
    _readers.setdefault(owner, Alive()).add(buffer)
    buffer.others = 0 if buffer.fixed else 1
    return buffer


def _stored(node: UOp) -> UOp:
    """The BUFFER below a view, which holds its bytes."""
    realize(bottom_of(latest(node)))
    return bottom_of(latest(node))


# ---- going elsewhere -----------------------------------------------------------------------------


def moved(node: UOp, device: str) -> UOp:
    """The value of `node` on another `device`."""
    assert node.device is not None
    if not keeps(node.device) or 0 in node.shape:
        return node.copy_to(device)
    if capturing():
        raise JitError(
            f"to: a tensor on {node.device} is fetched inside a captured step, and replays would "
            "not see what is written there later; legal is .to() outside, and an argument"
        )
    with turns.together(), keeping.now:  # another thread's write finds all who borrow, or none
        return _lifted(node, device)


def _lifted(node: UOp, device: str) -> UOp:
    """The bytes that a view shows as a value elsewhere: borrowed where that can be."""
    bottom = _stored(node)
    buffer, whole, part = buffer_of(bottom), whole_array(bottom), shown(latest(node), bottom)
    raise_faults(buffer)
    is_file = isinstance(buffer.handle, Region)
    inside = part.flags.c_contiguous and np.shares_memory(part, whole)
    if is_file and not keeps(device):
        lent = borrowed(part if inside else whole, node.dtype, device)
        if lent is not None:
            borrower, file = buffer_of(lent), buffer.handle.file
            # by the file, which stays open as long, who writes there finds it
            _among_readers(borrower, file).owner = file, borrower.owner
            return lent.reshape(node.shape) if inside else on_bottom(latest(node), bottom, lent)
    if inside:
        at = part.ctypes.data - whole.ctypes.data
        source = _part(buffer, at, part.nbytes, node.dtype)
    else:
        strided = _among_readers(Buffer(HOST, part.nbytes, part, buffer), _owner(buffer))
        source = bind(UOp.new_buffer(HOST, part.size, node.dtype), strided)
    return source.copy_to(device).reshape(node.shape)


def _part(buffer: Buffer, at: int, nbytes: int, dtype: DType) -> UOp:
    """Bytes of a buffer, as a BUFFER. That of a file has no path, so that plans work for all
    files."""
    made = _among_readers(buffer.view(at, nbytes), _owner(buffer))
    if isinstance(buffer.handle, Region):
        made.device = "DISK"
    return bind(UOp.new_buffer(made.device, nbytes // dtype.itemsize, dtype), made)


def recast(node: UOp, dtype: DType, shape: tuple[int, ...]) -> UOp:
    """The same bytes as elements of another type; DTypeError if they are not contiguous."""
    bottom = _stored(node)
    buffer, whole, part = buffer_of(bottom), whole_array(bottom), shown(latest(node), bottom)
    if not part.flags.c_contiguous or not np.shares_memory(part, whole):
        raise DTypeError(
            f"bitcast: on {node.device} a view of shape {node.shape} whose elements don't lie in a "
            "row; legal is .to() first"
        )
    at = part.ctypes.data - whole.ctypes.data
    if isinstance(buffer.handle, Region):
        file = buffer.handle.file
        made = _in_file(file, buffer.handle.offset + at, part.nbytes // dtype.itemsize, dtype)
    else:
        made = _part(buffer, at, part.nbytes, dtype)
    return made.reshape(shape)


# ---- writing -------------------------------------------------------------------------------------


def write(view: UOp, value: UOp) -> None:
    """Writes `value`, of the same shape, through the view, now."""
    if capturing():
        raise JitError(
            f"assign: to a tensor on {view.device} inside a captured step, which replays would not "
            "do; legal is to return the value and write it outside"
        )
    held = whole_buffer(value)  # its memory is what `values` shows
    values = read(held, copy=False).reshape(value.shape)
    bottom = _stored(view)
    buffer, whole = buffer_of(bottom), whole_array(bottom)
    if np.may_share_memory(values, whole):
        values = values.copy()
    readers = [r for r in _readers.get(_owner(buffer), ()) if r is not buffer]
    before_overwriting([buffer, *readers])
    for reader in readers:
        if reader.fixed:
            _keep(reader)
    bottom = _stored(view)  # its next version, in the same bytes
    if isinstance(buffer.handle, Region):
        file, base = buffer.handle.file, buffer.handle.offset - whole.ctypes.data
        for part, data in _runs(shown(latest(view), bottom), values):
            raw = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
            file.write(base + part.ctypes.data, raw.data)
    else:
        if not whole.flags.writeable:
            buffer.handle = np.array(whole).view(np.uint8)
        np.copyto(shown(latest(view), bottom), values)
    note_change()


def _keep(reader: Buffer) -> None:
    """Gives a borrower of a file's bytes a copy of them. It keeps the mapping, which it may have
    lent to others."""
    own = Buffer(reader.device, reader.nbytes)
    own.write(reader.read())
    reader.handle, reader.memory, reader.fixed = own.handle, own.memory, False
    own.memory = None  # the reader frees it now


def _runs(target: Array, values: Array) -> Iterator[tuple[Array, Array]]:
    """Contiguous parts of `target`, each with the values for it."""
    outer = 0
    while outer < target.ndim and not target[(0,) * outer].flags.c_contiguous:
        outer += 1
    values = np.broadcast_to(values, target.shape)
    return ((target[(*at, ...)], values[(*at, ...)]) for at in np.ndindex(target.shape[:outer]))
