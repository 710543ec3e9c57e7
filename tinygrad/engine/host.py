"""Steps that are no kernels: copies between devices, and host functions (CALL) by name."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinygrad.backends import keeps
from tinygrad.base.dtype import DType
from tinygrad.base.errors import ShapeError
from tinygrad.base.helpers import prod
from tinygrad.base.settings import DEBUG
from tinygrad.engine.devices import Device, Telling
from tinygrad.engine.profile import report_step
from tinygrad.engine.storage import Buffer, as_array, numpy_dtype
from tinygrad.schedule.bases import is_concrete
from tinygrad.schedule.plan import Step
from tinygrad.transforms.gradient import CALLS, CallRule
from tinygrad.uop import Ops, UOp

PIECE = 64 << 20  # bytes of a copy that are on the host at a time, if it must go through it


@dataclass(frozen=True)
class HostFunction:
    """A NumPy function that graphs may CALL, as function(results, *arguments, *numbers): it writes
    to the arrays `results`. `shapes` maps the (shape, dtype) of the arguments, and the numbers that
    the CALL has, to those of the results. `gradient` builds the arguments' gradients from the CALL
    and {number of a result: its gradient}; None means not differentiable."""

    name: str
    function: Callable[..., None]
    shapes: Callable[..., Sequence[tuple[tuple[int, ...], DType]]]
    gradient: CallRule | None = None


HOST_FUNCTIONS: dict[str, HostFunction] = {}


def register(function: HostFunction) -> HostFunction:
    """Makes `function` available by its name."""
    HOST_FUNCTIONS[function.name] = function
    if function.gradient is not None:
        CALLS[function.name] = function.gradient
    return function


def call(function: HostFunction, *arguments: UOp, parameters: tuple[float, ...] = ()) -> list[UOp]:
    """The results of a host function as nodes. ShapeError if a size is symbolic."""
    if given := [a.shape for a in arguments if not is_concrete(a)]:
        raise ShapeError(
            f"{function.name}: symbolic sizes, {given[0]}; legal are numbers: reshape a tensor to "
            "the sizes that it has now"
        )
    made = UOp(Ops.CALL, src=arguments, arg=(function.name, *parameters))
    results = _described(made)
    return [UOp(Ops.ITEM, dtype, (made,), (i, shape)) for i, (shape, dtype) in enumerate(results)]


def _described(node: UOp) -> Sequence[tuple[tuple[int, ...], DType]]:
    """What the results of a CALL are."""
    name, *parameters = node.arg
    return HOST_FUNCTIONS[name].shapes(*((a.shape, a.dtype) for a in node.src), *parameters)


def are_alike(target: Buffer, source: Buffer) -> bool:
    """Whether bytes can be copied directly from one to the other, concurrently with their devices'
    work: the caller has waited for what these were asked before."""
    kind = target.device.partition(":")[0]
    return kind == source.device.partition(":")[0] and not keeps(kind)


def copy(target: Buffer, source: Buffer) -> None:
    """Copies one buffer into another: by the devices' own means if both are of one kind, directly
    if the host can address both, else through the host."""
    here, there = Device[target.device].backend, Device[source.device].backend
    if are_alike(target, source):
        with Telling(target.device, f"copying {target.nbytes:,} bytes from {source.device}"):
            if here.copy_from is not None:
                return here.copy_from(target.handle, there.memory, source.handle, target.nbytes)
            to, start = here.memory.address(target.handle), there.memory.address(source.handle)
            if to is not None and start is not None:
                ctypes.memmove(to, start, target.nbytes)  # releases Python's lock
                return
    for first in range(0, source.nbytes, PIECE):
        target.write(source.read(first, min(PIECE, source.nbytes - first)), first)


def tell_copy(target: Buffer, source: Buffer, origin: str | None) -> None:
    """At DEBUG=2: the line of a copy that the user's line `origin` made."""
    if DEBUG >= 2:
        name = f"copy {source.nbytes:10d}, {target.device} <- {source.device}"
        report_step(target.device, name, 0.0, 0, source.nbytes, origin)


def run_host_step(step: Step, buffers: Sequence[Buffer], _: object) -> None:
    """Runs a COPY or CALL on its storages, results first."""
    if step.op is Ops.COPY:
        target, source = buffers
        copy(target, source)
        tell_copy(target, source, step.origin)
        return
    assert step.op is Ops.CALL, f"no way to run {step.op!r}"
    node, wanted = step.arg
    name, *parameters = node.arg
    function = HOST_FUNCTIONS[name]
    arguments = [
        _elements(buffer, source.shape, source.dtype)
        for buffer, source in zip(buffers[step.writes :], node.src, strict=True)
    ]
    room = dict(zip(wanted, buffers, strict=False))
    results = [_room(room.get(i), *each) for i, each in enumerate(_described(node))]
    function.function(results, *arguments, *parameters)
    for number, buffer in room.items():
        if _address(buffer) is None:
            buffer.write(results[number].data.cast("B"))


def _room(buffer: Buffer | None, shape: tuple[int, ...], dtype: DType) -> np.ndarray[Any, Any]:
    """The elements of a buffer to be written, apart from it where the host can't."""
    if buffer is not None and (place := _address(buffer)) is not None:
        return _array_at(place, shape, numpy_dtype(dtype))
    return np.empty(shape, numpy_dtype(dtype))


def _elements(buffer: Buffer, shape: tuple[int, ...], dtype: DType) -> np.ndarray[Any, Any]:
    if (place := _address(buffer)) is None:
        return as_array(buffer, dtype).reshape(shape)
    return _array_at(place, shape, numpy_dtype(dtype))


def _address(buffer: Buffer) -> int | None:
    """The host address of the bytes, once the device has finished its work."""
    if buffer.parts:
        return None
    device = Device[buffer.device]
    device.synchronize()
    return device.backend.memory.address(buffer.handle)


@functools.lru_cache(256)  # temporaries of captured steps keep their places
def _array_at(address: int, shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
    """The memory at an address, which someone owns whenever this is called."""
    nbytes = prod(shape) * dtype.itemsize
    return np.frombuffer((ctypes.c_char * nbytes).from_address(address), dtype).reshape(shape)
