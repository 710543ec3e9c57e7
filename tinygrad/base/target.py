"""What a device can do, as data. Heuristics, decompositions and tests read these rows and
never ask for a device's name; a new machine is a new row or a probe that fills one."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

ORDINARY = frozenset(("MAX", "MOD", "CMPEQ", "OR", "SHL", "SHR", "FAULT"))
"""Ops beyond the core that nearly every machine or language has: for `Target.native`."""


@dataclass(frozen=True)
class Numerics:
    """The arithmetic of a device, where the standard leaves room. Tests read this row."""

    nan: bool = True  # NaN and infinities behave as IEEE says
    exact_division: bool = True  # float division and square root are correctly rounded
    subnormals: bool = True  # subnormal results are kept, not flushed to zero
    fused_multiply_add: bool = True  # MULACC rounds once
    values: bool = True  # kernels run; if not, values that are read back are zeros


@dataclass(frozen=True)
class Target:
    """One device, described by numbers. Sizes are in bytes, counts in units, vectors in bytes."""

    device: str  # "CPU", "CL", ...
    triple: str = ""  # LLVM's name of the instruction set; empty where LLVM is not used
    cpu: str = ""
    features: str = ""  # flattened LLVM feature string; part of every cache key
    vector: int = 16  # widest vector register; 0: scalars only
    most_lanes: int = 64  # of a vector, if the device's language has such a limit
    registers: int = 16  # vector registers; for groups, words of a lane
    fma_ports: int = 2
    load_ports: int = 2
    fma_latency: int = 4
    cache_l1: int = 32 << 10
    cache_l2: int = 512 << 10
    cache_l3: int = 16 << 20  # of all cores together
    cache_line: int = 64
    cores: int = 1  # used for the number of threads only, never for the shape of the work
    has_groups: bool = False  # work-groups with shared LOCAL memory and barriers (a GPU)
    group_limit: int = 1  # work-items in a group
    local_memory: int = 0
    meets_in_branches: bool = True  # a BARRIER may be in a branch that a whole group takes
    aligned: bool = False  # buffers that are only read lie on 64 bytes too: none is borrowed
    warp: int = 0  # lanes of a group that run in lockstep and see each other's registers; 0: none
    buffer_limit: int = 0  # buffers that a kernel may bind; 0: any number
    window_limit: int = 0  # bytes that a binding may have; longer arrays take several; 0: any
    largest_buffer: int = 0  # bytes that a buffer may have; 0: any number
    turn_limit: int = 0  # turns of all loops of a lane, after which they are ended; 0: none
    grid_limit: tuple[int, int, int] = (2**31 - 1, 65535, 65535)
    dtypes: frozenset[str] = field(default_factory=frozenset)  # names with native arithmetic
    storage_dtypes: frozenset[str] = field(default_factory=frozenset)  # names it can load and store
    widest_integer: int = 64  # bits; wider ones, and indices that may not fit, become 32-bit words
    native: frozenset[str] = field(default_factory=frozenset)  # op names beyond the required core
    numerics: Numerics = field(default_factory=Numerics)

    def lanes(self, itemsize: int) -> int:
        """Elements of this size in a vector; at least one."""
        return max(1, min(self.vector // itemsize, self.most_lanes))

    def halved(self) -> Target:
        """The same target with vectors of half the size, of which it computes twice as many at a
        time."""
        fma_ports, load_ports = 2 * self.fma_ports, 2 * self.load_ports
        return replace(self, vector=self.vector // 2, fma_ports=fma_ports, load_ports=load_ports)

    def key(self) -> str:
        """Text that differs whenever generated code may differ; it doesn't include the core
        count."""
        rows = {k: v for k, v in self.__dict__.items() if k not in ("cores", "numerics")}
        return repr(
            sorted((k, sorted(v) if isinstance(v, frozenset) else v) for k, v in rows.items())
        )
