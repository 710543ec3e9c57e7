"""What processors are called and can do: tables only, read by `target.py`.

On Linux the kernel lists a processor's abilities in /proc/cpuinfo under its own names; these
tables say what LLVM calls them. Only abilities that change generated code are here.
"""

from __future__ import annotations

from dataclasses import dataclass

from tinygrad.base.target import ORDINARY

# name in /proc/cpuinfo → LLVM feature
X86_FEATURES = {
    "cx16": "cx16",
    "cmov": "cmov",
    "mmx": "mmx",
    "fxsr": "fxsr",
    "sse": "sse",
    "sse2": "sse2",
    "pni": "sse3",
    "ssse3": "ssse3",
    "sse4_1": "sse4.1",
    "sse4_2": "sse4.2",
    "sse4a": "sse4a",
    "lahf_lm": "sahf",
    "popcnt": "popcnt",
    "abm": "lzcnt",
    "bmi1": "bmi",
    "bmi2": "bmi2",
    "adx": "adx",
    "movbe": "movbe",
    "fma4": "fma4",
    "xop": "xop",
    "tbm": "tbm",
    "3dnowprefetch": "prfchw",
    "clflushopt": "clflushopt",
    "clwb": "clwb",
    "aes": "aes",
    "pclmulqdq": "pclmul",
    "sha_ni": "sha",
    "gfni": "gfni",
    "vaes": "vaes",
    "vpclmulqdq": "vpclmulqdq",
    "f16c": "f16c",
    "fma": "fma",
    "avx": "avx",
    "avx2": "avx2",
    "avx_vnni": "avxvnni",
    "avx_ifma": "avxifma",
    "avx_ne_convert": "avxneconvert",
    "avx_vnni_int8": "avxvnniint8",
    "avx_vnni_int16": "avxvnniint16",
    "avx512f": "avx512f",
    "avx512cd": "avx512cd",
    "avx512bw": "avx512bw",
    "avx512dq": "avx512dq",
    "avx512vl": "avx512vl",
    "avx512ifma": "avx512ifma",
    "avx512vbmi": "avx512vbmi",
    "avx512_vbmi2": "avx512vbmi2",
    "avx512_bitalg": "avx512bitalg",
    "avx512_vnni": "avx512vnni",
    "avx512_vpopcntdq": "avx512vpopcntdq",
    "avx512_vp2intersect": "avx512vp2intersect",
    "avx512_bf16": "avx512bf16",
    "avx512_fp16": "avx512fp16",
    "amx_tile": "amx-tile",
    "amx_int8": "amx-int8",
    "amx_bf16": "amx-bf16",
    "amx_fp16": "amx-fp16",
    "amx_complex": "amx-complex",
    "movdiri": "movdiri",
    "movdir64b": "movdir64b",
    "serialize": "serialize",
    "waitpkg": "waitpkg",
    "rtm": "rtm",
    "tsxldtrk": "tsxldtrk",
}

ARM_FEATURES = {
    "fp": "fp-armv8",
    "asimd": "neon",
    "fphp": "fullfp16",
    "asimdfhm": "fp16fml",
    "asimdrdm": "rdm",
    "asimddp": "dotprod",
    "atomics": "lse",
    "crc32": "crc",
    "fcma": "complxnum",
    "jscvt": "jsconv",
    "lrcpc": "rcpc",
    "i8mm": "i8mm",
    "bf16": "bf16",
    "sve": "sve",
    "sve2": "sve2",
}


# What all processors of a kind have, also where the system doesn't list it (containers, emulators).
ALWAYS = {
    "x86_64": ("cmov", "mmx", "fxsr", "sse", "sse2"),
    "aarch64": ("fp-armv8", "neon"),
}


@dataclass(frozen=True)
class Core:
    """A kind of core: LLVM's name for its instruction timings, and facts that heuristics use.

    It is recognised by its maker ("" is any) and abilities, not by its model number: machines
    behind a hypervisor often misstate the model.
    """

    cpu: str
    maker: str
    needs: tuple[str, ...]
    vector: int  # bytes
    registers: int
    fma_ports: int = 2  # of the widest vectors
    load_ports: int = 2


AVX512 = ("avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd")

# The first row that fits is taken.
X86_CORES = (
    Core("sapphirerapids", "GenuineIntel", (*AVX512, "avx512fp16", "avx512bf16"), 64, 32),
    Core("cooperlake", "GenuineIntel", (*AVX512, "avx512bf16"), 64, 32),
    Core("icelake-server", "GenuineIntel", (*AVX512, "avx512vbmi2"), 64, 32),
    Core("cascadelake", "GenuineIntel", (*AVX512, "avx512vnni"), 64, 32),
    Core("skylake-avx512", "GenuineIntel", AVX512, 64, 32),
    Core("znver5", "AuthenticAMD", (*AVX512, "avx512bf16", "avx512vp2intersect"), 64, 32),
    Core("znver4", "AuthenticAMD", (*AVX512, "avx512bf16"), 64, 32, fma_ports=1, load_ports=1),
    Core("x86-64-v4", "", AVX512, 64, 32),
    Core("alderlake", "GenuineIntel", ("avx2", "fma", "bmi2", "avxvnni"), 32, 16, load_ports=3),
    Core("haswell", "GenuineIntel", ("avx2", "fma", "bmi2"), 32, 16),
    Core("znver3", "AuthenticAMD", ("avx2", "fma", "bmi2", "vaes"), 32, 16),
    Core("znver2", "AuthenticAMD", ("avx2", "fma", "bmi2", "clwb"), 32, 16),
    Core("x86-64-v3", "", ("avx2", "fma", "bmi2", "f16c", "lzcnt", "movbe"), 32, 16),
    Core("x86-64-v2", "", ("sse4.2", "ssse3", "popcnt"), 16, 16),
    Core("x86-64", "", (), 16, 16),
)

# Vectors of scalable length are used at 16 bytes: our kernels have fixed shapes.
ARM_CORES = (
    Core("neoverse-v1", "", ("neon", "sve", "bf16", "i8mm", "fullfp16"), 16, 32, 4, 3),
    Core("neoverse-n1", "", ("neon", "fullfp16", "dotprod", "lse"), 16, 32),
    Core("generic", "", (), 16, 32),
)

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
DTYPES = frozenset(("bool", *INTEGERS, "float32", "float64"))
STORAGE_DTYPES = DTYPES | {"float16", "bfloat16"}

# Arithmetic in a dtype that only some machines have: dtype → the features that bring it.
EXTRA_DTYPES = {"float16": ("avx512fp16", "fullfp16")}

# Ops beyond the required core: op name → features of which one is needed ("" is always there).
# Without the feature LLVM would call the C library, which a kernel must not need.
NATIVE_OPS = {
    "MULACC": ("fma", "neon"),
    "CAST_BFLOAT": ("avx512bf16",),
    "CAST_HALF": ("f16c", "avx512fp16", "neon"),
    **dict.fromkeys(("TRUNC", "ROUND"), ("sse4.1", "neon")),
    "LDEXP": ("avx512f",),
    "VRANGE": ("avx512dq",),
    "VMIN": ("avx2",),
    "masked_store": ("avx512vl",),
    "RECIP": ("",),
    "PREFETCH": ("",),
    "PICK": ("",),
    **dict.fromkeys(ORDINARY, ("",)),
}
