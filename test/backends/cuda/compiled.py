"""A card that compiles and runs nothing, to see what code is made for any chip. `CUDA:90` is the
chip sm_90a, and so on: names that differ, so that plans and kernels of two chips don't mix."""

from __future__ import annotations

from tinygrad.backends.cuda.compiler import PTXCompiler
from tinygrad.backends.cuda.target import named_target
from tinygrad.backends.interface import Backend
from tinygrad.backends.llvm_ir import LLVMRenderer
from tinygrad.backends.null import NullMemory, NullQueue
from tinygrad.base.settings import Context
from tinygrad.engine import plans
from tinygrad.engine.cache import disk_cache
from tinygrad.engine.devices import Device, OpenDevice

DEVICES = {"sm_75": "CUDA:75", "sm_80": "CUDA:80", "sm_89": "CUDA:89", "sm_90a": "CUDA:90"}


class Recorder(PTXCompiler):
    """Keeps what it compiles."""

    def __init__(self, target):
        super().__init__(target)
        self.made: list[str] = []

    def compile(self, source):
        binary = super().compile(source)
        self.made.append(binary.rstrip(b"\0").decode())
        return binary


class NoMemory(NullMemory):
    """A card borrows nothing."""

    def borrow(self, data):
        return None


def open_chip(chip: str) -> Recorder:
    """Opens the device that compiles for a chip."""
    name = DEVICES[chip]
    if name not in Device._open:
        target = named_target(chip)
        parts = LLVMRenderer(target), Recorder(target), NoMemory(), NullQueue()
        Device._open[name] = OpenDevice(name, Backend(target, *parts))
    return Device[name].compiler


def kernels_of(chip: str, build) -> list[str]:
    """The PTX of all kernels that `build(device)`'s tensors need, generated anew."""
    recorder = open_chip(chip)
    recorder.made.clear()
    plans._plans.clear()  # what earlier tests made is forgotten, in the process and on disk
    Device[DEVICES[chip]].kernels.clear()
    with Context(CACHELEVEL=0):
        disk_cache().clear()
        made = build(DEVICES[chip])
        for tensor in made if isinstance(made, (list, tuple)) else (made,):
            tensor.realize()
    return list(recorder.made)
