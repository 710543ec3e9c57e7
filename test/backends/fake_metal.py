"""Metal and the Objective-C runtime as far as the METAL device calls them. Kernels are compiled
from their own sources, with the shim in place of Metal's library, and run when somebody waits.

    python -m pytest -p backends.fake_metal      every test, METAL being there
"""

import ctypes
import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import Counter, deque
from pathlib import Path

import pytest
from backends.fake_driver import Arena, Library, Misuse

from tinygrad.backends.metal import device as metal_device
from tinygrad.backends.metal import objc as metal_objc
from tinygrad.base.errors import DTypeError

SHIM = Path(__file__).parent / "metal_shim"
ID, U64, BOOL, DOUBLE = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_bool, ctypes.c_double
TEXT, INT64 = ctypes.c_char_p, ctypes.c_ssize_t
LANGUAGES = {(3 << 16) + 1, (2 << 16) + 3}


# ---- Metal's compiler ----------------------------------------------------------------------------


FLAGS = (
    *("-std=c++14", "-w", "-fwrapv", "-ffp-contract=off", "-fno-strict-aliasing"),
    *("-Xclang", "-ffloat16-excess-precision=none", "-I", str(SHIM), "-x", "c++", "-"),
)


@functools.cache
def folder():
    return Path(tempfile.mkdtemp(prefix="fake-metal-"))


def made(command, source, suffix):
    """The file that a compiler makes of a source, and its words: empty if it is right."""
    # a name of its own: two threads may compile one source at once
    handle, path = tempfile.mkstemp(suffix=suffix, dir=folder())
    os.close(handle)
    command = [*command, *FLAGS, "-o", path]
    ran = subprocess.run(command, input=source, capture_output=True, text=True)
    return path, ran.stderr if ran.returncode else ""


@functools.cache
def compiler():
    """A compiler of C++ that knows _Float16 and the flags (clang 16 or later); None if there is
    none."""
    names = ("clang++", *(f"clang++-{version}" for version in range(16, 30)))
    installed = [[found] for found in map(shutil.which, names) if found]
    for command in (*installed, [sys.executable, "-m", "ziglang", "c++"]):
        if not made([*command, "-S"], "_Float16 x;", ".s")[1]:
            return command
    return None


def for_shim(source):
    """`threadgroup` is `static` in a declaration, and nothing in a cast."""
    return source.replace("(threadgroup ", "(")


def check_syntax(source):
    """The compiler's words about a source of Metal's language; empty if it is right."""
    return made([*compiler(), "-S"], for_shim(source), ".s")[1]


HEAD = re.compile(
    r"\[\[kernel, max_total_threads_per_threadgroup\((\d+)\)\]\] void (\w+)\((.*), uint3 group"
)
PARAMETER = re.compile(r"(device|constant) (\w+)([*&]) (\w+) \[\[buffer\((\d+)\)\]\]")


def kernels_of(source):
    """Name → (lanes, parameters as (space, type, mark, name, slot))."""
    return {
        name: (int(lanes), PARAMETER.findall(parameters))
        for lanes, name, parameters in HEAD.findall(source)
    }


@functools.cache
def build(source):
    """The source as a library of this machine, or the compiler's words."""
    calls = []
    for name, (_, parameters) in kernels_of(source).items():
        given = (
            f"({kind}*)args[{slot}]" if mark == "*" else f"*({kind}*)args[{slot}]"
            for _, kind, mark, _, slot in parameters
        )
        calls.append(
            f"static void {name}_lane(void** args, metal::uint3 group, metal::uint3 lane)"
            f" {{ {name}({', '.join(given)}, group, lane); }}\n"
            f'extern "C" void {name}_grid(void** args, const uint* grid, const uint* block)'
            f" {{ metal::run_grid({name}_lane, args, grid, block); }}\n"
        )
    whole = for_shim(source) + "".join(calls)
    command = [*compiler(), "-O1", "-fPIC", "-shared", "-nostdlib++", "-fno-exceptions", "-lm"]
    path, words = made(command, whole, ".so")
    return (None, words) if words else (ctypes.CDLL(path), "")


# ---- objects -------------------------------------------------------------------------------------


class Machine:
    """The objects that live, the devices that there are, and what shall go wrong."""

    def __init__(self, names=("Apple M0",), capacity=1 << 30):
        self.objects = {}
        self.next_id = 0x1000
        self.threads = threading.local()
        self.selectors = {}
        self.arena = Arena(capacity)
        self.calls = deque(maxlen=1000)
        self.sent = Counter()  # messages by selector
        self.failures = []  # codes of MTLCommandBufferError for the next command buffers
        self.most_lanes = 1024
        self.most_arguments = 31
        self.languages = set(LANGUAGES)
        self.devices = [Device(self, name) for name in names]

    def open_library(self, path):
        """In the place of `objc.open_library`."""
        functions = {
            metal_objc.OBJC: {
                "objc_getClass": lambda name: CLASSES[name.decode()](self).id,
                "sel_registerName": self.selector,
                "objc_autoreleasePoolPush": self.push,
                "objc_autoreleasePoolPop": self.pop,
                "objc_msgSend": Send(self),
            },
            metal_objc.METAL: {
                "MTLCreateSystemDefaultDevice": lambda: self.devices[0].id if self.devices else 0,
                "MTLCopyAllDevices": lambda: Array(self, self.devices).id if self.devices else 0,
            },
            metal_objc.GRAPHICS: {},
        }
        return Library(functions[path], calls=self.calls)

    def selector(self, name):
        number = 0x5E1 + len(self.selectors)
        return self.selectors.setdefault(name.decode(), number)

    @property
    def pools(self):
        """This thread's."""
        return self.threads.__dict__.setdefault("pools", [])

    def push(self):
        self.pools.append([])
        return len(self.pools)

    def pop(self, token):
        if token != len(self.pools):
            raise Misuse("pools end in the order in which they began")
        for each in self.pools.pop():
            each.release()

    def autoreleased(self, made):
        if not self.pools:
            raise Misuse(f"{made} leaks: no pool is around")
        self.pools[-1].append(made)
        return made.id

    def count(self, selector):
        return self.sent[selector]

    def living(self, kind):
        return sum(isinstance(each, kind) for each in self.objects.values())


class Send:
    """objc_msgSend: the method, if this is how it is called."""

    wants_types = True

    def __init__(self, machine):
        self.machine = machine

    def __call__(self, receiver, selector, *arguments, result, kinds):
        if not receiver:
            return 0
        names = {number: name for name, number in self.machine.selectors.items()}
        name = names[selector]
        target = self.machine.objects.get(receiver)
        self.machine.sent[name] += 1
        if target is None:
            raise Misuse(f"{name} is sent to an object that was released")
        method = getattr(target, name.replace(":", "_"), None)
        if method is None:
            raise Misuse(f"{type(target).__name__} has no method {name}")
        wanted = METHODS[name]
        if same(wanted) != same((result, *kinds[2:])):
            raise Misuse(f"{name} is {wanted}, not {(result, *kinds[2:])}")
        return method(*arguments)


def same(kinds):
    """Types by their shape: structures by their fields."""
    return [tuple(k._fields_) if hasattr(k, "_fields_") else k for k in kinds]


class MTLSize(ctypes.Structure):
    _fields_ = [("width", U64), ("height", U64), ("depth", U64)]


class NSRange(ctypes.Structure):
    _fields_ = [("start", U64), ("length", U64)]


ERROR = ctypes.POINTER(ID)
# As Apple's headers declare them: result, arguments.
METHODS = {
    "new": (ID,),
    "release": (None,),
    "retain": (ID,),
    "stringWithUTF8String:": (ID, TEXT),
    "UTF8String": (TEXT,),
    "localizedDescription": (ID,),
    "code": (INT64,),
    "count": (U64,),
    "objectAtIndex:": (ID, U64),
    "name": (ID,),
    "recommendedMaxWorkingSetSize": (ctypes.c_uint64,),
    "maxBufferLength": (U64,),
    "maxThreadgroupMemoryLength": (U64,),
    "newCommandQueue": (ID,),
    "newBufferWithLength:options:": (ID, U64, U64),
    "newLibraryWithSource:options:error:": (ID, ID, ID, ERROR),
    "newComputePipelineStateWithFunction:error:": (ID, ID, ERROR),
    "setFastMathEnabled:": (None, BOOL),
    "setLanguageVersion:": (None, U64),
    "newFunctionWithName:": (ID, ID),
    "maxTotalThreadsPerThreadgroup": (U64,),
    "contents": (ID,),
    "commandBuffer": (ID,),
    "computeCommandEncoder": (ID,),
    "commit": (None,),
    "status": (U64,),
    "error": (ID,),
    "GPUStartTime": (DOUBLE,),
    "GPUEndTime": (DOUBLE,),
    "setComputePipelineState:": (None, ID),
    "setBuffers:offsets:withRange:": (None, ctypes.POINTER(ID), ctypes.POINTER(U64), NSRange),
    "setBytes:length:atIndex:": (None, ID, U64, U64),
    "dispatchThreadgroups:threadsPerThreadgroup:": (None, MTLSize, MTLSize),
    "endEncoding": (None,),
}


class Object:
    def __init__(self, machine):
        self.machine, self.references = machine, 1
        machine.next_id += 16
        self.id = machine.next_id
        machine.objects[self.id] = self

    def retain(self):
        self.references += 1
        return self.id

    def release(self):
        self.references -= 1
        if self.references < 0:
            raise Misuse(f"{type(self).__name__} is released too often")
        if self.references == 0:
            del self.machine.objects[self.id]
            self.gone()

    def gone(self):
        pass

    def get(self, address):
        return self.machine.objects[address]


class String(Object):
    text = b""

    def stringWithUTF8String_(self, text):
        made = String(self.machine)
        made.text = text
        return self.machine.autoreleased(made)

    def UTF8String(self):
        return self.text


class Array(Object):
    def __init__(self, machine, items):
        super().__init__(machine)
        self.items = items

    def count(self):
        return len(self.items)

    def objectAtIndex_(self, i):
        return self.items[i].id


class Error(Object):
    def __init__(self, machine, words, number=0):
        super().__init__(machine)
        self.words, self.number = words, number

    def localizedDescription(self):
        return String(self.machine).stringWithUTF8String_(self.words.encode())

    def code(self):
        return self.number


class Options(Object):
    fast, language = True, None

    def new(self):
        return Options(self.machine).id

    def setFastMathEnabled_(self, fast):
        self.fast = fast

    def setLanguageVersion_(self, version):
        self.language = version


CLASSES = {"NSString": String, "MTLCompileOptions": Options}


class Device(Object):
    def __init__(self, machine, name):
        super().__init__(machine)
        self.label = name

    def name(self):
        return String(self.machine).stringWithUTF8String_(self.label.encode())

    def recommendedMaxWorkingSetSize(self):
        return self.machine.arena.capacity

    def maxBufferLength(self):
        return self.machine.arena.capacity // 2

    def maxThreadgroupMemoryLength(self):
        return 32 << 10

    def newCommandQueue(self):
        return CommandQueue(self.machine).id

    def newBufferWithLength_options_(self, length, options):
        if not 0 < length <= self.maxBufferLength():
            raise Misuse(f"a buffer of {length} bytes")
        if options != 0:
            raise Misuse("not shared")
        at = self.machine.arena.allocate(length)
        return Buffer(self.machine, at, length).id if at else 0

    def newLibraryWithSource_options_error_(self, source, options, error):
        options, text = self.get(options), self.get(source).text.decode()
        if options.fast:
            raise Misuse("fast mathematics takes NaN for a number")
        words = "" if options.language in self.machine.languages else "no such language version"
        library = None
        if not words:
            library, words = build(text)
        if words:
            error._obj.value = self.machine.autoreleased(Error(self.machine, words))
            return 0
        return ShaderLibrary(self.machine, library, text).id

    def newComputePipelineStateWithFunction_error_(self, function, error):
        return Pipeline(self.machine, self.get(function)).id


class ShaderLibrary(Object):
    def __init__(self, machine, loaded, source):
        super().__init__(machine)
        self.loaded, self.kernels = loaded, kernels_of(source)

    def newFunctionWithName_(self, name):
        name = self.get(name).text.decode()
        return Kernel(self.machine, self, name).id if name in self.kernels else 0


class Kernel(Object):
    def __init__(self, machine, library, name):
        super().__init__(machine)
        self.run = library.loaded[f"{name}_grid"]
        self.lanes, self.parameters = library.kernels[name]


class Pipeline(Object):
    def __init__(self, machine, function):
        super().__init__(machine)
        self.function = function

    def maxTotalThreadsPerThreadgroup(self):
        return min(self.machine.most_lanes, self.function.lanes)


class Buffer(Object):
    def __init__(self, machine, address, length):
        super().__init__(machine)
        self.address, self.length = address, length

    def contents(self):
        return self.address

    def gone(self):
        self.machine.arena.free(self.address)


class CommandQueue(Object):
    def __init__(self, machine):
        super().__init__(machine)
        self.sent, self.hangs = [], False

    def commandBuffer(self):
        return self.machine.autoreleased(CommandBuffer(self.machine, self))


class CommandBuffer(Object):
    NOT_SENT, SENT, DONE, FAILED = 0, 3, 4, 5

    def __init__(self, machine, queue):
        super().__init__(machine)
        self.queue, self.state, self.dispatches, self.encoder = queue, self.NOT_SENT, [], None
        self.failure, self.times, self.kept = None, (0.0, 0.0), []

    def computeCommandEncoder(self):
        self.encoder = Encoder(self.machine, self)
        return self.machine.autoreleased(self.encoder)

    def commit(self):
        if self.encoder is None or self.encoder.is_open or self.state != self.NOT_SENT:
            raise Misuse("commit: an encoder is open, or the commands were sent before")
        self.state = self.SENT
        self.retain()
        self.queue.sent.append(self)

    def status(self):
        """Each time that somebody looks the next commands are over."""
        if self.state == self.NOT_SENT:
            raise Misuse("waits for commands that were not sent")
        if self.state == self.SENT and not self.queue.hangs:
            self.queue.sent.pop(0).execute()
        return self.state

    def execute(self):
        machine = self.machine
        code = machine.failures.pop(0) if machine.failures else 0
        if code:
            self.failure = Error(machine, f"injected error {code}", code)
        else:
            for dispatch in self.dispatches:
                dispatch()
        begin = float(len(machine.calls))
        self.times = begin, begin + 0.25 * len(self.dispatches)
        self.state = self.FAILED if code else self.DONE
        for each in self.kept:
            each.release()
        self.release()

    def error(self):
        return self.failure.id if self.failure else 0

    def GPUStartTime(self):
        return self.times[0]

    def GPUEndTime(self):
        return self.times[1]


class Encoder(Object):
    def __init__(self, machine, commands):
        super().__init__(machine)
        self.commands, self.is_open = commands, True
        self.pipeline, self.buffers, self.bytes = None, {}, {}

    def keep(self, each):
        each.retain()
        self.commands.kept.append(each)

    def setComputePipelineState_(self, pipeline):
        self.pipeline = self.get(pipeline)
        self.keep(self.pipeline)

    def setBuffers_offsets_withRange_(self, ids, offsets, span):
        for i in range(span.length):
            buffer = self.get(ids[i])
            if offsets[i] >= buffer.length:
                raise Misuse(f"byte {offsets[i]} of a buffer of {buffer.length}")
            self.keep(buffer)
            self.buffers[span.start + i] = buffer.address + offsets[i]

    def setBytes_length_atIndex_(self, at, length, slot):
        if length > 4096:
            raise Misuse("more than 4 KB")
        self.bytes[slot] = ctypes.string_at(ctypes.addressof(at._obj), length)

    def dispatchThreadgroups_threadsPerThreadgroup_(self, grid, block):
        function = self.pipeline.function
        lanes = block.width * block.height * block.depth
        if not 0 < lanes <= self.pipeline.maxTotalThreadsPerThreadgroup():
            raise Misuse(f"a group of {lanes} lanes")
        table = {slot: ctypes.create_string_buffer(raw) for slot, raw in self.bytes.items()}
        words = self.buffers | {slot: ctypes.addressof(raw) for slot, raw in table.items()}
        missing = [p for p in function.parameters if int(p[4]) not in words]
        if missing or len(function.parameters) > self.machine.most_arguments:
            raise Misuse(f"arguments that are not set, or too many: {missing}")
        args = (ID * len(function.parameters))(*(words[int(p[4])] for p in function.parameters))
        sizes = [(ctypes.c_uint * 3)(s.width, s.height, s.depth) for s in (grid, block)]

        def run():
            assert table is not None  # what the addresses lead to
            function.run(args, *sizes)

        self.commands.dispatches.append(run)

    def endEncoding(self):
        self.is_open = False


# ---- as a plugin of pytest -----------------------------------------------------------------------


def install(machine=None):
    """METAL is there from now on."""
    machine = machine or Machine()
    metal_device.open_library = machine.open_library
    return machine


def pytest_configure(config):
    install()


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem):
    """A test that computes with float64 is right if that is refused."""
    try:
        return (yield)
    except DTypeError as error:
        if "float64: device METAL" not in str(error):
            raise
        return True
