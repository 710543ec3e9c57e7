"""AMD's runtime library on cards that aren't there: CUDA's driver as `cuda.fake_driver` makes it,
by HIP's names, with contexts that are devices' numbers. Code objects are looked into as far as they
are files; their kernels run by the interpreter, from the linear programs that they were made of.
"""

import ctypes
import hashlib
import json
import os
import struct
from pathlib import Path
from types import SimpleNamespace

from backends.cuda import fake_driver
from backends.cuda.fake_driver import Card, FakeLibrary, Function, Module

from tinygrad.backends.amd import driver
from tinygrad.backends.amd.compiler import AMDCompiler
from tinygrad.backends.interface import Launch
from tinygrad.backends.interpreter.renderer import PythonRenderer
from tinygrad.backends.interpreter.runtime import PythonQueue, run_kernel
from tinygrad.backends.llvm_ir import LLVMRenderer
from tinygrad.backends.program import params, special_sizes, variables
from tinygrad.base.helpers import prod
from tinygrad.uop.instructions import local_layout

NO_BINARY_FOR_GPU = 209
NAME_AT = 1160  # where the chip's name stands in this library's properties
# As HIP's headers declare them, apart from the backend's table.
HEADER = {
    "hipInit": "u",
    "hipDriverGetVersion": "p",
    "hipDrvGetErrorName": "ip",
    "hipDrvGetErrorString": "ip",
    "hipGetDeviceCount": "p",
    "hipDeviceTotalMem": "pi",
    "hipSetDevice": "i",
    "hipStreamCreateWithFlags": "pu",
    "hipStreamQuery": "p",
    "hipStreamSynchronize": "p",
    "hipEventCreateWithFlags": "pu",
    "hipEventDestroy": "p",
    "hipEventRecord": "pp",
    "hipEventSynchronize": "p",
    "hipEventElapsedTime": "ppp",
    "hipMalloc": "pz",
    "hipFree": "p",
    "hipHostMalloc": "pzu",
    "hipMemcpyHtoDAsync": "ppzp",
    "hipMemcpyDtoHAsync": "ppzp",
    "hipMemcpyPeerAsync": "pipizp",
    "hipModuleLoadDataEx": "ppupp",
    "hipModuleUnload": "p",
    "hipModuleGetFunction": "ppp",
    "hipFuncSetAttribute": "pii",
    "hipModuleLaunchKernel": "puuuuuuuppp",
    "hipGraphCreate": "pu",
    "hipGraphAddKernelNode": "pppzp",
    "hipGraphInstantiateWithFlags": "ppq",
    "hipGraphExecKernelNodeSetParams": "ppp",
    "hipGraphLaunch": "pp",
    "hipGraphExecDestroy": "p",
    "hipGraphDestroy": "p",
}


class FakeHIP(FakeLibrary):
    """The library and its cards, one for each of `chips`."""

    def __init__(self, chips=("gfx1100",), **options):
        super().__init__([Card(size=32 << 20) for _ in chips], **options)
        self.chips = chips

    def library(self):
        """What `ctypes.CDLL` would be."""
        found = SimpleNamespace()
        for name, letters in HEADER.items():
            nvidias = next(cu for cu, hip in driver.NAMES.items() if hip == name)
            kind = ctypes.CFUNCTYPE(ctypes.c_int, *(fake_driver.KINDS[x] for x in letters))
            setattr(found, name, kind(self._entry(nvidias)))
        kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int)
        found.hipGetDevicePropertiesR0600 = kind(self.properties)
        return found

    def properties(self, where, number):
        name = b"AMD Fake gfx900\0"  # a card that is called by a chip which it is not
        ctypes.memmove(where, name, len(name))
        chip = self.chips[number].encode() + b":sramecc+:xnack-\0"
        ctypes.memmove(where + NAME_AT, chip, len(chip))
        return 0

    def do_cuCtxSetCurrent(self, number):
        self.current = self.cards[number or 0]

    def _parameters(self, at):
        """hipKernelNodeParams."""
        *block, _, function, x, y, z, arguments, shared = struct.unpack(
            "3IPP3IPI", ctypes.string_at(at, 60)
        )
        return self._node(function, (x, y, z), tuple(block), shared, arguments)

    def do_cuMemFree(self, address):
        return super().do_cuMemFree(address or 0)

    def do_cuMemcpyPeerAsync(self, target, to, source, of, nbytes, stream):
        if not self.cards[to].holds(target, nbytes) or not self.cards[of].holds(source, nbytes):
            return fake_driver.INVALID_VALUE
        ctypes.memmove(target, source, nbytes)

    def do_cuModuleLoadDataEx(self, where, image, count, options, values):
        head = ctypes.string_at(image, 64)
        table, rows = struct.unpack_from("<Q", head, 40)[0], struct.unpack_from("<H", head, 60)[0]
        if head[:4] != b"\x7fELF" or head[16] != 3:
            return NO_BINARY_FOR_GPU
        self.make(where, Module(ctypes.string_at(image, table + 64 * rows)))

    def do_cuModuleGetFunction(self, where, handle, name):
        facts = json.loads(record_of(self.objects[handle].text).read_text())
        if facts["name"] != ctypes.string_at(name).decode():
            return fake_driver.NOT_FOUND
        kernel = SimpleNamespace(**facts, parameters=[8] * (facts["buffers"] + facts["values"]))
        self.make(where, Function(kernel, Interpreted(self, kernel), 64 << 10))


class Interpreted:
    """A kernel by the interpreter, on the card's memory."""

    def __init__(self, library, kernel):
        self.library, self.kernel = library, kernel
        self.function = PythonQueue().load(kernel.source.encode(), kernel.name)

    def __call__(self, words, grid, block, place):
        count = self.kernel.buffers
        buffers = [self.bytes_from(word) for word in words[:count]]
        values = [ctypes.c_int64(word).value for word in words[count : len(self.kernel.parameters)]]
        launch = Launch(self.function, (), (), tuple(grid), tuple(block))
        run_kernel(launch, buffers, values)
        return 0

    def bytes_from(self, address):
        """What may be touched from an address on, to the end of its block."""
        for start, size in self.library.current.blocks.items():
            if start <= address < start + size:
                length = (start + size - address) // 8 * 8
                return memoryview((ctypes.c_ubyte * length).from_address(address)).cast("B")
        raise AssertionError(f"{address:#x} is in no block")


def record_of(binary):
    """Where the facts about a code object lie."""
    digest = hashlib.sha256(binary).hexdigest()
    return Path(os.environ["TINYGRAD_CACHE"]) / f"fake-hip-{digest}.json"


def install(monkeypatch, library):
    """AMD is there, and what is compiled for it is remembered as Python."""
    monkeypatch.setattr(driver, "open_library", library.library)
    render, compile_ = LLVMRenderer.render, AMDCompiler.compile
    programs = {}

    def rendered(self, name, program):
        text = render(self, name, program)
        lanes = prod(n for word, n in special_sizes(program).items() if word.startswith("lid"))
        programs[text] = {
            "name": name,
            "source": PythonRenderer().render(name, program),
            "buffers": len(params(program)),
            "values": len(variables(program)),
            "lanes": lanes,
            "static": local_layout(program)[1],
        }
        return text

    def compiled(self, source):
        binary = compile_(self, source)
        record_of(binary).write_text(json.dumps(programs[source]))
        return binary

    monkeypatch.setattr(LLVMRenderer, "render", rendered)
    monkeypatch.setattr(AMDCompiler, "compile", compiled)
    return library
