"""Machines that are not here, as their backends describe them: Target and renderer by name."""

from tinygrad.backends.amd.target import chip_of, chip_target
from tinygrad.backends.c_dialect import METAL_BFLOAT, OPENCL_HALF
from tinygrad.backends.c_family import CRenderer
from tinygrad.backends.cl.device import NATIVE, STORAGE
from tinygrad.backends.interface import INTEGERS
from tinygrad.backends.llvm_ir import LLVMRenderer
from tinygrad.backends.metal.device import COMPUTED, MOST_LANES, STORED
from tinygrad.backends.metal.device import NATIVE as METAL_NATIVE
from tinygrad.backends.qcom import describe
from tinygrad.base.target import Numerics, Target

METAL_TARGET = Target(
    "METAL",
    vector=16,
    most_lanes=4,
    warp=32,
    has_groups=True,
    aligned=True,
    group_limit=MOST_LANES,
    local_memory=32 << 10,
    dtypes=COMPUTED,
    storage_dtypes=STORED,
    native=METAL_NATIVE | {"CAST_BFLOAT16"},
    numerics=Numerics(subnormals=False),
)

# An Adreno 740 as its OpenCL driver describes it.
NUMBERS = frozenset(("bool", *INTEGERS, "float16", "float32"))
ADRENO = describe(
    Target(
        "CL",
        cpu="QUALCOMM Adreno(TM) 740",
        has_groups=True,
        group_limit=1024,
        local_memory=32 << 10,
        dtypes=NUMBERS,
        storage_dtypes=NUMBERS | {*STORAGE},
        native=NATIVE | {"MULACC"},
    )
)
RDNA3 = chip_target(chip_of("gfx1100"), "gfx1100")
CDNA3 = chip_target(chip_of("gfx942"), "gfx942")

MACHINES = {
    "metal": (METAL_TARGET, CRenderer(METAL_BFLOAT)),
    "qcom": (ADRENO, CRenderer(OPENCL_HALF)),
    "gfx1100": (RDNA3, LLVMRenderer(RDNA3)),
    "gfx942": (CDNA3, LLVMRenderer(CDNA3)),
}
