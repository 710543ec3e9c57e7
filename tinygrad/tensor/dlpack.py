"""DLPack: how array libraries hand each other memory, as C structs in capsules.

The structs are those of the standard's header `dlpack.h`, version 1.0; an older consumer or
producer (no `max_version`) gets and gives the struct without version and flags. Nothing here knows
tensors.
Source: https://dmlc.github.io/dlpack/latest/.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from tinygrad.base.dtype import COMPLEX_PARTS, DType, complex_of, dtypes
from tinygrad.base.helpers import prod, strides_for

VERSION = (1, 0)
CPU = (1, 0)  # (device type, number) of the host's memory
DEVICES = {"CUDA": 2, "CL": 4, "METAL": 8, "AMD": 10, "WEBGPU": 15}  # device types
READ_ONLY, IS_COPIED = 1, 2  # flags

# (code, bits) of each dtype; the codes are int 0, uint 1, float 2, bfloat 4, complex 5, bool 6
CODES: dict[DType, tuple[int, int]] = {
    dtypes.bool: (6, 8),
    **{kind: (0, 8 * kind.itemsize) for kind in dtypes.sints},
    **{kind: (1, 8 * kind.itemsize) for kind in dtypes.uints},
    **{kind: (2, 8 * kind.itemsize) for kind in (dtypes.half, dtypes.float, dtypes.double)},
    dtypes.bfloat16: (4, 16),
    dtypes.fp8e4m3: (10, 8),  # kDLFloat8_e4m3fn
    dtypes.fp8e5m2: (12, 8),
    dtypes.complex64: (5, 64),
    dtypes.complex128: (5, 128),
}


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Plain(ctypes.Structure):
    """DLManagedTensor: before version 1."""

    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class _Versioned(ctypes.Structure):
    """DLManagedTensorVersioned."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_KINDS: dict[bytes, Any] = {b"dltensor_versioned": _Versioned, b"dltensor": _Plain}


class Strided(NamedTuple):
    """Elements in memory: where the first lies, how many along each axis, and how many elements
    apart."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: DType

    def as_pairs(self) -> Strided:
        """Complex numbers as pairs of floats, along one more axis."""
        steps = (*(2 * step for step in self.strides), 1)
        return Strided(self.address, (*self.shape, 2), steps, COMPLEX_PARTS[self.dtype])

    def as_complex(self) -> Strided | None:
        """The other way round; None where the two of a pair don't lie side by side."""
        *steps, last = self.strides  # of which those of axes of size 1 say nothing
        apart = any(step % 2 and n != 1 for step, n in zip(steps, self.shape, strict=False))
        if last != 1 or apart:
            return None
        halves = tuple(step // 2 for step in steps)
        return Strided(self.address, self.shape[:-1], halves, complex_of(self.dtype))


# ---- capsules of Python --------------------------------------------------------------------------

_api = ctypes.pythonapi
_new = _api.PyCapsule_New
_new.restype = ctypes.py_object
_new.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_is_valid = _api.PyCapsule_IsValid
_is_valid.restype = ctypes.c_int
_is_valid.argtypes = (ctypes.c_void_p, ctypes.c_char_p)
_pointer = _api.PyCapsule_GetPointer
_pointer.restype = ctypes.c_void_p
_pointer.argtypes = (ctypes.c_void_p, ctypes.c_char_p)
_rename = _api.PyCapsule_SetName
_rename.argtypes = (ctypes.c_void_p, ctypes.c_char_p)

# A capsule keeps the pointer to its name, so these live as long as the process.
_NAMES = {name: ctypes.c_char_p(name) for name in (*_KINDS, *(b"used_" + n for n in _KINDS))}


def _name_of(capsule: int) -> bytes | None:
    """The name of a capsule that nobody has taken, None for anything else."""
    return next((name for name in _KINDS if _is_valid(capsule, name)), None)


# ---- lending -------------------------------------------------------------------------------------

_lent: dict[int, tuple[Any, ...]] = {}  # number → the struct, what is to be kept, the capsule
_numbers = itertools.count(1)


def _delete(kind: Any, struct: int) -> None:
    """What a struct of this kind lends isn't used any more."""
    _lent.pop(kind.from_address(struct).context, None)


def _references(loan: tuple[Any, ...]) -> int:
    """How many hold a loan's capsule, counting this call."""
    return sys.getrefcount(loan[-1])


_ALONE = _references((object(),))


def _end_of_nobodys() -> None:
    """Loans whose capsule died before anybody took what it holds are over. A capsule could say that
    itself, but its destructor would be Python while the consumer's error is on its way, which loses
    the error."""
    for number, loan in list(_lent.items()):
        if _references(loan) == _ALONE and _name_of(id(loan[-1])) is not None:
            _lent.pop(number, None)


# What C calls, for as long as the process lives. Deleters are called from any thread.
_DELETER: Callable[[Any], Any] = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_DELETERS = {kind: _DELETER(functools.partial(_delete, kind)) for kind in _KINDS.values()}


def capsule_of(array: Strided, keep: Any, versioned: bool, flags: int = 0) -> Any:
    """A capsule that lends `array`; `keep` lives until the consumer has deleted it, or until the
    next loan if there is none."""
    _end_of_nobodys()
    managed: Any = _Versioned() if versioned else _Plain()
    tensor = managed.tensor
    tensor.data = array.address if prod(array.shape) else None
    tensor.device_type, tensor.device_id = CPU
    tensor.ndim, tensor.lanes = len(array.shape), 1
    tensor.code, tensor.bits = CODES[array.dtype]
    tensor.shape = (ctypes.c_int64 * len(array.shape))(*array.shape)
    tensor.strides = (ctypes.c_int64 * len(array.shape))(*array.strides)
    if versioned:
        managed.major, managed.minor = VERSION
        managed.flags = flags
    managed.deleter = ctypes.cast(_DELETERS[type(managed)], ctypes.c_void_p)
    managed.context = next(_numbers)
    name = b"dltensor_versioned" if versioned else b"dltensor"
    capsule = _new(ctypes.addressof(managed), _NAMES[name], None)
    _lent[managed.context] = (managed, keep, capsule)
    return capsule


# ---- borrowing -----------------------------------------------------------------------------------


class Borrowed:
    """What a capsule held: ours to use until this object goes, which tells the producer."""

    _at_the_end = staticmethod(sys.is_finalizing)

    def __init__(self, capsule: Any) -> None:
        self._struct: Any = None
        at = id(capsule)
        name = _name_of(at) if type(capsule).__name__ == "PyCapsule" else None
        if name is None:
            raise BufferError(
                f"from_dlpack: {capsule!r}; legal are capsules named dltensor or "
                "dltensor_versioned that nobody has taken yet"
            )
        struct = _KINDS[name].from_address(_pointer(at, name))
        _rename(at, _NAMES[b"used_" + name])
        self._struct = struct
        if name == b"dltensor_versioned" and struct.major != VERSION[0]:
            raise BufferError(
                f"from_dlpack: version {struct.major}.{struct.minor}; legal are those of 1"
            )
        flags = struct.flags if name == b"dltensor_versioned" else 0
        self.read_only = bool(flags & READ_ONLY)
        self.device = struct.tensor.device_type, struct.tensor.device_id
        self.array = _strided(struct.tensor)

    def __del__(self) -> None:
        struct, self._struct = self._struct, None
        if struct is not None and struct.deleter and not self._at_the_end():
            _DELETER(struct.deleter)(ctypes.addressof(struct))


def _strided(tensor: Any) -> Strided:
    kinds = {code: kind for kind, code in CODES.items()}
    dtype = kinds.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    if dtype is None:
        raise BufferError(
            f"from_dlpack: elements of type code {tensor.code}, {tensor.bits} bits, {tensor.lanes} "
            f"lanes; legal are those of {', '.join(kind.name for kind in CODES)}"
        )
    shape = tuple(tensor.shape[: tensor.ndim]) if tensor.ndim else ()
    strides = tuple(tensor.strides[: tensor.ndim]) if tensor.ndim and tensor.strides else None
    address = (tensor.data or 0) + tensor.byte_offset
    return Strided(address, shape, strides or strides_for(shape), dtype)
