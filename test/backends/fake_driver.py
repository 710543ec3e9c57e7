"""Drivers of devices that this machine lacks, as far as a runtime calls them: libraries whose
functions are Python's, with real memory of the host behind them.

A `Library` is what `ctypes.CDLL` would be: `library[name]` is a function that must be told its
types before it is called. Each call is checked against what the real function takes, and recorded.
"""

import ctypes


class Misuse(AssertionError):
    """A call that the real driver would not have survived."""


class Function:
    """One function of a library, with the types that its caller declared."""

    def __init__(self, name, implementation, calls, types=None):
        self.name, self.implementation, self.calls, self.types = name, implementation, calls, types
        self.argtypes, self.restype = None, ctypes.c_int

    def __call__(self, *arguments):
        if self.argtypes is None:
            raise Misuse(f"{self.name} is called without the types of its arguments")
        if len(arguments) != len(self.argtypes):
            raise Misuse(f"{self.name} takes {len(self.argtypes)} arguments, got {arguments}")
        if self.types is not None and (self.restype, tuple(self.argtypes)) != self.types:
            raise Misuse(f"{self.name} is {self.types}, not {(self.restype, self.argtypes)}")
        given = [plain(kind, value) for kind, value in zip(self.argtypes, arguments, strict=True)]
        self.calls.append((self.name, given))
        return self.implementation(*given, **self.declared())

    def declared(self):
        """What a function of many types (objc_msgSend) must know of this use of it."""
        wants = getattr(self.implementation, "wants_types", False)
        return {"result": self.restype, "kinds": tuple(self.argtypes)} if wants else {}


def plain(kind, value):
    """A value as the function of C receives it: numbers are cut to their size."""
    kind.from_param(value)  # raises ArgumentError for what ctypes would not pass
    if isinstance(value, ctypes._SimpleCData):
        return value.value
    if issubclass(kind, ctypes._SimpleCData) and (value is None or isinstance(value, int | float)):
        return kind(value).value
    return value


class Library:
    """A library of C: `functions` by name, and for those in `types` (result, arguments)."""

    def __init__(self, functions, types=None, calls=None):
        self.functions, self.types = functions, types or {}
        self.calls = [] if calls is None else calls
        self.bound = {}

    def __getitem__(self, name):
        if name not in self.functions:
            raise AttributeError(f"undefined symbol: {name}")
        return Function(name, self.functions[name], self.calls, self.types.get(name))

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self.bound.setdefault(name, self[name])

    def count(self, name):
        """How often a function was called."""
        return sum(called == name for called, _ in self.calls)


class Arena:
    """Blocks of real memory: who touches what is not, or not any more, in one is found out."""

    def __init__(self, capacity=1 << 30):
        self.capacity, self.used = capacity, 0
        self.blocks = {}  # address → ctypes array

    def allocate(self, nbytes):
        """The address of a new block full of 0xAB; None where the capacity ends."""
        if self.used + nbytes > self.capacity:
            return None
        block = (ctypes.c_ubyte * max(1, nbytes + 256)).from_buffer(
            bytearray(b"\xab") * (nbytes + 256)
        )
        address = -(-ctypes.addressof(block) // 256) * 256
        self.blocks[address] = block, nbytes
        self.used += nbytes
        return address

    def free(self, address):
        if address not in self.blocks:
            raise Misuse(f"{address:#x} is freed but is no block")
        self.used -= self.blocks.pop(address)[1]

    def room(self, address):
        """Bytes from here to the end of the block around."""
        for start, (_, nbytes) in self.blocks.items():
            if start <= address < start + nbytes:
                return start + nbytes - address
        raise Misuse(f"{address:#x} is in no block of the device")
