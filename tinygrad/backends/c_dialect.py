"""What differs between the languages that look like C: one table of words a language.

The renderer in `c_family.py` knows expressions, scopes and names; everything that is spelled
differently stands here, as templates. A new language is a new row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tinygrad.backends.statements import Words
from tinygrad.base.dtype import DType, dtypes

# The name of vector types: this word and the number of lanes, in every dialect.
VECTOR_WORDS = {
    dtypes.bool: "char",  # 0 or -1 in each lane, as vector comparisons give
    dtypes.index: "long",
    dtypes.int8: "char",
    dtypes.uint8: "uchar",
    dtypes.int16: "short",
    dtypes.uint16: "ushort",
    dtypes.int32: "int",
    dtypes.uint32: "uint",
    dtypes.int64: "long",
    dtypes.uint64: "ulong",
    dtypes.fp8e4m3: "uchar",
    dtypes.fp8e5m2: "uchar",
    dtypes.float16: "half",
    dtypes.bfloat16: "ushort",
    dtypes.float32: "float",
    dtypes.float64: "double",
}

C_TYPES = VECTOR_WORDS | {
    dtypes.bool: "_Bool",
    dtypes.int8: "signed char",
    dtypes.uint8: "unsigned char",
    dtypes.uint16: "unsigned short",
    dtypes.uint32: "unsigned int",
    dtypes.int64: "long long",
    dtypes.uint64: "unsigned long long",
    dtypes.index: "long long",
    dtypes.fp8e4m3: "unsigned char",
    dtypes.fp8e5m2: "unsigned char",
    dtypes.float16: "_Float16",
    dtypes.bfloat16: "unsigned short",
}


C_MATH = ("INFINITY", "NAN", "sqrt", "trunc", "rint", "fma", "exp2", "log2", "sin", "pow")


def lanewise(names: str) -> str:
    """A macro that applies a function of C to each lane of its vectors."""
    given = "".join(f", {name}" for name in names)
    kept = " ".join(f"T {name}_ = {name};" for name in names)
    lanes = ", ".join(f"{name}_[i]" for name in names)
    loop = "for (int i = 0; i < (int)(sizeof(T)/sizeof(a_[0])); i++)"
    return (
        f"#define lanewise{len(names)}(T, f{given}) "
        f"({{ {kept} T out; {loop} out[i] = f({lanes}); out; }})"
    )


@dataclass(frozen=True, kw_only=True)
class Dialect(Words):
    """One language. Templates are filled in by `str.format` with the names in their braces."""

    types: Mapping[DType, str]
    vector_words: Mapping[DType, str]
    bool_memory: str  # the type of a stored bool
    head: str
    pointer: str  # a parameter that points to a buffer
    picked: str  # declares a pointer to one of several buffers
    begin: str  # a line that turns such a parameter into the pointer `name`; empty if it is one
    local: str  # declares scratch memory
    literal: str  # a vector of `lanes`
    splat: str  # a vector of one `value` everywhere
    lane: str
    lanewise: str  # a function of `count` vectors
    convert: str  # a vector of another type
    choose: str  # of vectors, by a vector condition
    bits: str  # reinterpreted
    load: str  # of a vector
    store: str
    take: str  # true for one caller: writes `code` where a 0 was
    specials: Mapping[str, str]
    longs: str = "l"  # suffix of 64-bit integers
    single: str = ""  # suffix of functions of one float
    typedef: str = ""  # makes a vector type
    wraps: bool = True  # signed integers wrap; else they are computed as unsigned ones
    bound: str = "const {type} {name}"  # a parameter that is a bound variable
    compared: str = ""  # a vector of bools from a comparison of vectors; empty: `convert`
    extreme: str = ""  # the smaller or larger integers of two vectors; empty: `choose`
    spaces: tuple[str, str] = ("", "")  # words before a type: in a buffer, in scratch memory
    widest: int = 16  # lanes of the longest vector
    exchange: str = ""  # the value of another lane of the warp
    as_bits: frozenset[DType] = frozenset((dtypes.bfloat16, *dtypes.fp8s))
    """Floats that are held as integers of their bits; helpers convert half."""


C = Dialect(
    name="C",
    types=C_TYPES,
    vector_words=VECTOR_WORDS,
    bool_memory="_Bool",
    head="void {name}({parameters}) {{",
    pointer="{type}* restrict {name}",
    picked="{type}* {name} = {value};",
    begin="",
    local="{type}* {name} = ({type}*)(scratch+{offset});",
    literal="(({type}){{{lanes}}})",
    splat="all({type}, {value})",
    lane="{value}[{lane}]",
    lanewise="lanewise{count}({type}, {name}, {sources})",
    convert="__builtin_convertvector({value}, {type})",
    widest=1024,  # C's own are of any length
    choose="choose({condition}, {yes}, {no}, {type}, {mask})",
    bits="bitcast({type}, {value})",
    extreme="lanewise2({type}, {name}, {sources})",
    load="*({type}*)({pointer})",
    store="*({type}*)({pointer}) = {value};",
    take="__sync_bool_compare_and_swap({pointer}, 0, {code})",
    barrier="",
    specials={"task": "task"},
    longs="ll",  # Windows' long has 32 bits
    single="f",
    typedef="typedef {element} {type} __attribute__((vector_size({bytes}), aligned({align}), "
    "may_alias));",
    helpers=(
        *((word, "#include <math.h>") for word in C_MATH),
        *(
            (f"lanewise{count}", lanewise(names))
            for count, names in enumerate(["a", "ab", "abc"], 1)
        ),
        ("smaller", "#define smaller(a, b) ((a)<(b)?(a):(b))"),
        ("larger", "#define larger(a, b) ((a)<(b)?(b):(a))"),
        ("all", "#define all(T, x) ((T)((__typeof__((T){0}[0]))(x) - (T){0}))"),
        (
            "choose",
            "#define choose(c, a, b, T, M) ((T)(((M)(a) & __builtin_convertvector(c, M)) | "
            "((M)(b) & ~__builtin_convertvector(c, M))))",
        ),
        (
            "bitcast",
            "#define bitcast(T, x) "
            "({ __typeof__(x) from = (x); T to; __builtin_memcpy(&to, &from, sizeof to); to; })",
        ),
    ),
)

# For compilers without _Float16: half is an integer of 16 bits, as bfloat16 is.
C_BITS = replace(
    C,
    name="C without half",
    types=C_TYPES | {dtypes.float16: "unsigned short"},
    vector_words=VECTOR_WORDS | {dtypes.float16: "ushort"},
    as_bits=C.as_bits | {dtypes.float16},
)

OPENCL = Dialect(
    name="OpenCL C",
    types=VECTOR_WORDS | {dtypes.bool: "bool", dtypes.float16: "ushort"},
    vector_words=VECTOR_WORDS | {dtypes.float16: "ushort"},
    bool_memory="char",
    head="__kernel void {name}({parameters}) {{",
    # An argument of OpenCL can't point into a buffer, so the offset is passed beside it.
    pointer="__global char* {name}_whole, const long {name}_at",
    picked="__global {type}* {name} = {value};",
    begin="__global {type}* restrict {name} = (__global {type}*)({name}_whole+{name}_at);",
    local="__local {type} {name}[{size}] __attribute__((aligned(64)));",
    literal="(({type})({lanes}))",
    splat="(({type})({value}))",
    lane="{value}.s{lane:x}",
    lanewise="{name}({sources})",
    convert="convert_{type}({value})",
    choose="select({no}, {yes}, convert_{mask}({condition}))",
    bits="as_{type}({value})",
    load="vload{count}(0, {pointer})",
    store="vstore{count}({value}, 0, {pointer});",
    take="atomic_cmpxchg((volatile __global int*)({pointer}), 0, {code}) == 0",
    barrier="barrier(CLK_LOCAL_MEM_FENCE|CLK_GLOBAL_MEM_FENCE);",
    specials={"task": "get_global_id(0)"}
    | {f"gid{axis}": f"get_group_id({axis})" for axis in range(3)}
    | {f"lid{axis}": f"get_local_id({axis})" for axis in range(3)},
    helpers=(
        ("double", "#pragma OPENCL EXTENSION cl_khr_fp64 : enable"),
        ("float", "#pragma OPENCL FP_CONTRACT OFF"),
        ("double", "#pragma OPENCL FP_CONTRACT OFF"),
        (
            "half_to_float",
            "float half_to_float(ushort x) { return vload_half(0, (const __private half*)&x); }",
        ),
        *(
            (
                f"{kind}_to_half",
                f"ushort {kind}_to_half({kind} x) "
                "{ ushort y; vstore_half_rte(x, 0, (__private half*)&y); return y; }",
            )
            for kind in ("float", "double")
        ),
    ),
    wraps=False,
    as_bits=C.as_bits | {dtypes.float16},
)

OPENCL_HALF = replace(
    OPENCL,
    name="OpenCL C with half",
    types=OPENCL.types | {dtypes.float16: "half"},  # type: ignore[operator]
    vector_words=VECTOR_WORDS,
    helpers=(("half", "#pragma OPENCL EXTENSION cl_khr_fp16 : enable"), *OPENCL.helpers),
    as_bits=C.as_bits,
)

# A vector in memory that may be aligned to elements only has a `packed` type. The compiler is told
# the number of lanes in a group, so that it limits the registers accordingly. A comparison of
# vectors gives bools, which are 0 and 1 as numbers.
METAL = Dialect(
    name="Metal",
    types=VECTOR_WORDS | {dtypes.bool: "bool"},
    vector_words=VECTOR_WORDS,
    bool_memory="bool",
    head="[[kernel, max_total_threads_per_threadgroup({lanes})]] void {name}({parameters}, "
    "uint3 group [[threadgroup_position_in_grid]], uint3 lane "
    "[[thread_position_in_threadgroup]]) {{",
    pointer="device {type}* {name} [[buffer({slot})]]",
    picked="device {type}* {name} = {value};",
    begin="",
    local="alignas(16) threadgroup {type} {name}[{size}];",
    literal="{type}({lanes})",
    splat="{type}({value})",
    lane="{value}[{lane}]",
    lanewise="{name}({sources})",
    convert="{type}({value})",
    choose="select({no}, {yes}, bool{count}({condition}))",
    bits="as_type<{type}>({value})",
    load="{type}(*({space} {packed}{type}*)({pointer}))",
    store="*({space} {packed}{type}*)({pointer}) = {packed}{type}({value});",
    take="first_fault({pointer}, {code})",
    barrier="threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);",
    specials={"task": "group.x"}
    | {f"gid{axis}": f"group.{letter}" for axis, letter in enumerate("xyz")}
    | {f"lid{axis}": f"lane.{letter}" for axis, letter in enumerate("xyz")},
    helpers=(
        ("kernel", "#include <metal_stdlib>"),
        ("kernel", "using namespace metal;"),
        ("float", "#pragma METAL fp contract(off)"),
        (
            "first_fault",
            "bool first_fault(device long* words, int code) {\n"
            "  int found = 0;\n"
            "  while (found == 0) {\n"
            "    if (atomic_compare_exchange_weak_explicit((device atomic_int*)words, &found, code,"
            " memory_order_relaxed, memory_order_relaxed)) return true;\n"
            "  }\n"
            "  return false;\n"
            "}",
        ),
    ),
    wraps=False,
    bound="constant {type}& {name} [[buffer({slot})]]",
    compared="(-{type}({value}))",
    spaces=("device", "threadgroup"),
    widest=4,
    exchange="simd_shuffle_xor({value}, {mask})",
)

METAL_BFLOAT = replace(
    METAL,
    name="Metal with bfloat",
    types=METAL.types | {dtypes.bfloat16: "bfloat"},  # type: ignore[operator]
    vector_words=VECTOR_WORDS | {dtypes.bfloat16: "bfloat"},
    as_bits=frozenset(dtypes.fp8s),
)
