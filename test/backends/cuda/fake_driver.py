"""A driver of cards that aren't there: the entry points of NVIDIA's library as C functions, over
memory of the host and the emulator. What it is given is checked as the driver would (handles,
sizes, alignment, order), and any function can be told to fail.

Signatures are written here from NVIDIA's documentation, apart from those in the backend: a letter
an argument (i int, u unsigned, z size, q 64 bits, p pointer).
"""

from __future__ import annotations

import ctypes
import mmap
import struct
import tempfile
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from backends.cuda.emulator import Kernel, build, translate

KINDS = {"i": ctypes.c_int, "u": ctypes.c_uint, "z": ctypes.c_size_t} | {
    "q": ctypes.c_uint64,
    "p": ctypes.c_void_p,
}
SIGNATURES = {
    "cuInit": "u",
    "cuDriverGetVersion": "p",
    "cuGetErrorName": "ip",
    "cuGetErrorString": "ip",
    "cuDeviceGetCount": "p",
    "cuDeviceGet": "pi",
    "cuDeviceGetAttribute": "pii",
    "cuDeviceTotalMem_v2": "pi",
    "cuDevicePrimaryCtxRetain": "pi",
    "cuCtxSetCurrent": "p",
    "cuStreamCreate": "pu",
    "cuStreamQuery": "p",
    "cuStreamSynchronize": "p",
    "cuEventCreate": "pu",
    "cuEventDestroy_v2": "p",
    "cuEventRecord": "pp",
    "cuEventSynchronize": "p",
    "cuEventElapsedTime": "ppp",
    "cuMemAlloc_v2": "pz",
    "cuMemFree_v2": "q",
    "cuMemHostAlloc": "pzu",
    "cuMemcpyHtoDAsync_v2": "qpzp",
    "cuMemcpyDtoHAsync_v2": "pqzp",
    "cuMemcpyPeerAsync": "qpqpzp",
    "cuModuleLoadDataEx": "ppupp",
    "cuModuleUnload": "p",
    "cuModuleGetFunction": "ppp",
    "cuFuncSetAttribute": "pii",
    "cuLaunchKernel": "puuuuuuuppp",
    "cuGraphCreate": "pu",
    "cuGraphAddKernelNode": "pppzp",
    "cuGraphInstantiateWithFlags": "ppq",
    "cuGraphExecKernelNodeSetParams": "ppp",
    "cuGraphLaunch": "pp",
    "cuGraphExecDestroy": "p",
    "cuGraphDestroy": "p",
    "cuTensorMapEncodeTiled": "piupppppiiii",
}

INVALID_VALUE, OUT_OF_MEMORY, NO_DEVICE, NO_CONTEXT = 1, 2, 100, 201
INVALID_PTX, INVALID_HANDLE, NOT_FOUND, UNKNOWN = 218, 400, 500, 999
NAMES = {
    1: ("CUDA_ERROR_INVALID_VALUE", "invalid argument"),
    2: ("CUDA_ERROR_OUT_OF_MEMORY", "out of memory"),
    100: ("CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"),
    201: ("CUDA_ERROR_INVALID_CONTEXT", "invalid device context"),
    218: ("CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"),
    400: ("CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"),
    500: ("CUDA_ERROR_NOT_FOUND", "named symbol not found"),
    700: ("CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"),
    702: ("CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated"),
    716: ("CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"),
    719: ("CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"),
}

PAGE = 512  # bytes to which the map of what is allocated is kept
SHARED = {(8, 0): 163 << 10, (9, 0): 227 << 10}


@dataclass
class Card:
    """A card's memory: an arena, of which a map says what is allocated."""

    capability: tuple[int, int] = (9, 0)
    size: int = 256 << 20

    def __post_init__(self):
        self.arena = mmap.mmap(-1, self.size)
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(self.arena))
        self.map = (ctypes.c_uint8 * (self.size // PAGE))()
        self.blocks: dict[int, int] = {}
        self.end = PAGE  # nothing lies at the very beginning

    def allocate(self, nbytes: int) -> int:
        size = -(-nbytes // PAGE) * PAGE
        at, taken = PAGE, sorted(self.blocks.items())
        for start, length in taken:
            if start - self.base - at >= size:
                break
            at = start - self.base + length
        if at + size > self.size:
            return 0
        self.blocks[self.base + at] = size
        for page in range(at // PAGE, (at + size) // PAGE):
            self.map[page] = 1
        ctypes.memset(self.base + at, 0xFF, size)
        return self.base + at

    def free(self, address: int) -> bool:
        size = self.blocks.pop(address, 0)
        first = (address - self.base) // PAGE
        for page in range(first, first + size // PAGE):
            self.map[page] = 0
        return size > 0

    def holds(self, address: int, nbytes: int) -> bool:
        return any(b <= address and address + nbytes <= b + s for b, s in self.blocks.items())


class Place(ctypes.Structure):
    _fields_ = (
        ("map", ctypes.c_void_p),
        ("base", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("shared", ctypes.c_void_p),
        ("lent", ctypes.c_uint),
        ("error", ctypes.c_int),
        ("at", ctypes.c_uint64),
    )


@dataclass
class Function:
    kernel: Kernel
    run: object
    most_shared: int = 48 << 10


@dataclass
class Node:
    """A kernel of a graph: what was copied from its arguments when it was given."""

    function: Function
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared: int
    arguments: list[int]
    before: list[int] = field(default_factory=list)


class FakeLibrary:
    """The library. `fails[name] = [codes]` makes the next calls of a function give these; `calls`
    counts; `launched` lists kernels in order."""

    def __init__(self, cards=None, version=12_080, start=0, lacks=()):
        self.cards = [Card()] if cards is None else list(cards)
        self.version, self.start = version, start
        self.calls: Counter[str] = Counter()
        self.fails: dict[str, list[int]] = {}
        self.launched: list[str] = []
        self.texts: list[str] = []  # of the modules that were loaded
        self.objects: dict[int, object] = {}
        self.kinds: Counter[str] = Counter()  # living objects by kind
        self.current = None
        self.broken = 0
        self.clock = 0.0
        self.folder = Path(tempfile.mkdtemp())
        self.kept: list[object] = []
        for name, letters in SIGNATURES.items():
            if name in lacks:
                continue
            kind = ctypes.CFUNCTYPE(ctypes.c_int, *(KINDS[letter] for letter in letters))
            setattr(self, name, kind(self._entry(name)))

    def _entry(self, name):
        method = getattr(self, "do_" + name.removesuffix("_v2"))

        def entry(*arguments):
            self.calls[name] += 1
            if self.fails.get(name):
                code = self.fails[name].pop(0)
                self.broken = code if code >= 700 else self.broken
                return code
            if self.broken and not name.startswith(("cuGetError", "cuCtxSetCurrent")):
                return self.broken
            if name[2:5] in ("Mem", "Str", "Eve", "Mod", "Lau", "Gra") and self.current is None:
                return NO_CONTEXT
            try:
                return method(*arguments) or 0
            except Exception:  # a callback can't raise: it ends up as "unknown error"
                traceback.print_exc()
                return UNKNOWN

        return entry

    # ---- handles ---------------------------------------------------------------------------------

    def put(self, where, value, kind=ctypes.c_void_p):
        kind.from_address(where).value = value

    def make(self, where, thing):
        handle = 0x1000 + 16 * (len(self.objects) + 1)
        self.objects[handle] = thing
        self.kinds[type(thing).__name__] += 1
        self.put(where, handle)

    def drop(self, handle, kind):
        if not isinstance(self.objects.get(handle), kind):
            return INVALID_HANDLE
        self.kinds[kind.__name__] -= 1
        self.objects[handle] = None

    # ---- the driver and its cards ----------------------------------------------------------------

    def do_cuInit(self, flags):
        return self.start or (0 if self.cards else NO_DEVICE)

    def do_cuDriverGetVersion(self, where):
        self.put(where, self.version, ctypes.c_int)

    def _text(self, where, text):
        self.kept.append(ctypes.create_string_buffer(text.encode()))
        self.put(where, ctypes.addressof(self.kept[-1]))

    def do_cuGetErrorName(self, code, where):
        self._text(where, NAMES[code][0]) if code in NAMES else self.put(where, 0)

    def do_cuGetErrorString(self, code, where):
        self._text(where, NAMES[code][1]) if code in NAMES else self.put(where, 0)

    def do_cuDeviceGetCount(self, where):
        self.put(where, len(self.cards), ctypes.c_int)

    def do_cuDeviceGet(self, where, number):
        self.put(where, number, ctypes.c_int)

    def do_cuDeviceGetAttribute(self, where, attribute, number):
        card = self.cards[number]
        facts = {1: 1024, 10: 32, 16: 132, 38: 50 << 20, 75: card.capability[0]}
        facts |= {76: card.capability[1], 97: SHARED.get(card.capability, 99 << 10)}
        self.put(where, facts[attribute], ctypes.c_int)

    def do_cuDeviceTotalMem(self, where, number):
        self.put(where, self.cards[number].size, ctypes.c_size_t)

    def do_cuDevicePrimaryCtxRetain(self, where, number):
        self.make(where, self.cards[number])

    def do_cuCtxSetCurrent(self, handle):
        if not isinstance(self.objects.get(handle), Card):
            return NO_CONTEXT
        self.current = self.objects[handle]

    # ---- streams and events ----------------------------------------------------------------------

    def do_cuStreamCreate(self, where, flags):
        self.make(where, Stream(self.current))

    def _stream(self, handle):
        stream = self.objects.get(handle)
        return isinstance(stream, Stream)

    def do_cuStreamQuery(self, stream):
        return 0 if self._stream(stream) else INVALID_HANDLE

    def do_cuStreamSynchronize(self, stream):
        return 0 if self._stream(stream) else INVALID_HANDLE

    def do_cuEventCreate(self, where, flags):
        self.make(where, Event(flags))

    def do_cuEventDestroy(self, handle):
        return self.drop(handle, Event)

    def do_cuEventRecord(self, handle, stream):
        event = self.objects.get(handle)
        if not isinstance(event, Event) or not self._stream(stream):
            return INVALID_HANDLE
        if self.objects[stream].card is not self.current:
            return INVALID_HANDLE
        event.time = self.clock

    def do_cuEventSynchronize(self, event):
        return 0 if isinstance(self.objects.get(event), Event) else INVALID_HANDLE

    def do_cuEventElapsedTime(self, where, start, end):
        events = self.objects[start], self.objects[end]
        if any(event.flags & 2 for event in events):
            return INVALID_HANDLE
        self.put(where, 1e3 * (events[1].time - events[0].time), ctypes.c_float)

    # ---- memory ----------------------------------------------------------------------------------

    def do_cuMemAlloc(self, where, nbytes):
        if not nbytes:
            return INVALID_VALUE
        address = self.current.allocate(nbytes)
        if not address:
            return OUT_OF_MEMORY
        self.put(where, address, ctypes.c_uint64)

    def do_cuMemFree(self, address):
        return 0 if self.current.free(address) else INVALID_VALUE

    def do_cuMemHostAlloc(self, where, nbytes, flags):
        self.kept.append(ctypes.create_string_buffer(nbytes))
        self.put(where, ctypes.addressof(self.kept[-1]))

    def do_cuMemcpyHtoDAsync(self, target, source, nbytes, stream):
        if not self.current.holds(target, nbytes) or not self._stream(stream):
            return INVALID_VALUE
        ctypes.memmove(target, source, nbytes)

    def do_cuMemcpyDtoHAsync(self, target, source, nbytes, stream):
        if not self.current.holds(source, nbytes) or not self._stream(stream):
            return INVALID_VALUE
        ctypes.memmove(target, source, nbytes)

    def do_cuMemcpyPeerAsync(self, target, to, source, of, nbytes, stream):
        there, here = self.objects[to], self.objects[of]
        if not there.holds(target, nbytes) or not here.holds(source, nbytes):
            return INVALID_VALUE
        if not self._stream(stream):
            return INVALID_HANDLE
        ctypes.memmove(target, source, nbytes)

    # ---- kernels ---------------------------------------------------------------------------------

    def do_cuModuleLoadDataEx(self, where, image, count, options, values):
        text = ctypes.string_at(image).decode()
        kinds = list((ctypes.c_int * count).from_address(options)) if count else []
        given = list((ctypes.c_void_p * count).from_address(values)) if count else []
        told = dict(zip(kinds, given, strict=True))
        if not text.lstrip().startswith("//") or ".entry" not in text:
            words = b"ptxas fatal: Missing .version directive at start of file"
            if 5 in told:
                ctypes.memmove(told[5], words[: told[6] - 1] + b"\0", min(told[6], len(words) + 1))
            return INVALID_PTX
        self.texts.append(text)
        self.make(where, Module(text))

    def do_cuModuleUnload(self, handle):
        return self.drop(handle, Module)

    def do_cuModuleGetFunction(self, where, handle, name):
        module = self.objects[handle]
        name = ctypes.string_at(name).decode()
        kernels = [k for k in translate(module.text) if k.name == name]
        if not kernels:
            return NOT_FOUND
        run = build(kernels[0], Path(tempfile.mkdtemp(dir=self.folder)))
        self.make(where, Function(kernels[0], run))

    def do_cuFuncSetAttribute(self, handle, attribute, value):
        function = self.objects[handle]
        if attribute != 8 or value + function.kernel.static > 227 << 10:
            return INVALID_VALUE
        function.most_shared = value

    def do_cuTensorMapEncodeTiled(
        self,
        where,
        kind,
        rank,
        address,
        sizes,
        strides,
        box,
        steps,
        plain,
        swizzle,
        promotion,
        fill,
    ):
        """A map in words of our own; what NVIDIA's manual asks of the arguments is checked."""
        size = {0: 1, 1: 2, 2: 4}[kind]
        sizes = list((ctypes.c_uint64 * rank).from_address(sizes))
        strides = list((ctypes.c_uint64 * (rank - 1)).from_address(strides))
        box = list((ctypes.c_uint32 * rank).from_address(box))
        fine = 2 <= rank <= 5 and where % 64 == 0 and address % 16 == 0 and plain == fill == 0
        fine = fine and all(0 < n <= 2**32 for n in sizes) and all(0 < n <= 256 for n in box)
        fine = fine and all(n % 16 == 0 and n < 2**40 for n in strides)
        fine = fine and swizzle == 3 and box[0] * size <= 128 and box[0] * size % 16 == 0
        if not fine or list((ctypes.c_uint32 * rank).from_address(steps)) != [1] * rank:
            return INVALID_VALUE
        last = sum((n - 1) * s for n, s in zip(sizes, [size, *strides], strict=True))
        assert any(c.holds(address, last + size) for c in self.cards), "a map of other memory"
        words = [address, rank, size, *sizes, *[1] * (5 - rank)]
        words += [*strides, *[0] * (5 - rank)]
        packed = struct.pack("<12Q5I", *words, *box, *[1] * (5 - rank)).ljust(128, b"\0")
        ctypes.memmove(where, packed, 128)

    def _node(self, function, grid, block, shared, arguments):
        function = self.objects.get(function)
        if not isinstance(function, Function):
            return None
        sizes = function.kernel.parameters
        count = len(sizes)
        places = list((ctypes.c_void_p * count).from_address(arguments)) if count else []
        words = [
            ctypes.c_uint64.from_address(place).value if size == 8 else self._copied(place, size)
            for place, size in zip(places, sizes, strict=True)
        ]
        return Node(function, grid, block, shared, words)

    def _copied(self, place, size):
        """Where a copy of a longer argument is."""
        self.kept.append(ctypes.create_string_buffer(ctypes.string_at(place, size), size))
        return ctypes.addressof(self.kept[-1])

    def _run(self, node):
        function = node.function
        lanes = node.block[0] * node.block[1] * node.block[2]
        if any(n > most for n, most in zip(node.block, (1024, 1024, 64), strict=True)):
            return INVALID_VALUE
        limits = (2**31 - 1, 65535, 65535)
        if lanes > function.kernel.lanes or not all(node.grid) or not lanes:
            return INVALID_VALUE
        if any(n > most for n, most in zip(node.grid, limits, strict=True)):
            return INVALID_VALUE
        total = node.shared + function.kernel.static
        if total > max(function.most_shared, 48 << 10) or function.kernel.static > 48 << 10:
            return INVALID_VALUE
        self.launched.append(function.kernel.name)
        card = self.current
        raw = ctypes.create_string_buffer(total + 1024)
        aligned = ctypes.addressof(raw) + 1023 & ~1023
        place = Place(ctypes.addressof(card.map), card.base, card.size, aligned, total, 0, 0)
        words = (ctypes.c_uint64 * max(1, len(node.arguments)))(*node.arguments)
        sizes = (ctypes.c_uint * 3)(*node.grid), (ctypes.c_uint * 3)(*node.block)
        self.broken = function.run(words, *sizes, ctypes.byref(place))
        self.clock += 1e-6 * len(self.launched)

    def do_cuLaunchKernel(self, function, gx, gy, gz, bx, by, bz, shared, stream, arguments, extra):
        if not self._stream(stream) or extra:
            return INVALID_HANDLE
        node = self._node(function, (gx, gy, gz), (bx, by, bz), shared, arguments)
        return self._run(node) if node else INVALID_HANDLE

    # ---- graphs ----------------------------------------------------------------------------------

    def do_cuGraphCreate(self, where, flags):
        self.make(where, Graph({}))

    def _parameters(self, at):
        """CUDA_KERNEL_NODE_PARAMS_v1."""
        function, *shape, shared, arguments, extra = struct.unpack(
            "P7IPP", ctypes.string_at(at, 56)
        )
        return self._node(function, tuple(shape[:3]), tuple(shape[3:]), shared, arguments)

    def do_cuGraphAddKernelNode(self, where, graph, before, count, parameters):
        node = self._parameters(parameters)
        if node is None:
            return INVALID_HANDLE
        node.before = list((ctypes.c_void_p * count).from_address(before)) if count else []
        self.make(where, node)
        self.objects[graph].nodes[ctypes.c_void_p.from_address(where).value] = node

    def do_cuGraphInstantiateWithFlags(self, where, graph, flags):
        self.make(where, Executable(dict(self.objects[graph].nodes), graph))

    def do_cuGraphExecKernelNodeSetParams(self, executable, node, parameters):
        nodes = self.objects[executable].nodes
        if node not in nodes or self.objects[self.objects[executable].graph] is None:
            return INVALID_HANDLE
        changed = self._parameters(parameters)
        if changed is None or changed.function is not nodes[node].function:
            return INVALID_VALUE
        nodes[node] = changed

    def do_cuGraphLaunch(self, executable, stream):
        if not isinstance(self.objects.get(executable), Executable) or not self._stream(stream):
            return INVALID_HANDLE
        done = set()
        for handle, node in self.objects[executable].nodes.items():
            assert done.issuperset(node.before), "a kernel before what it waits for"
            if code := self._run(node):
                return code
            done.add(handle)

    def do_cuGraphExecDestroy(self, handle):
        return self.drop(handle, Executable)

    def do_cuGraphDestroy(self, handle):
        return self.drop(handle, Graph)


@dataclass
class Stream:
    card: Card


@dataclass
class Event:
    flags: int
    time: float = 0.0


@dataclass
class Module:
    text: str


@dataclass
class Graph:
    nodes: dict


@dataclass
class Executable:
    nodes: dict
    graph: int  # nodes are named by the graph, which must still be there


def install(library: FakeLibrary | None = None) -> FakeLibrary:
    """Makes the CUDA backend find this library in place of NVIDIA's, in this process."""
    from tinygrad.backends.cuda import driver

    library = library or FakeLibrary()
    driver.open_library = lambda: library
    return library
