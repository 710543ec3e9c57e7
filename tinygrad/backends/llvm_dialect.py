"""What differs between LLVM's targets: one row for processors, one for each kind of GPU.

The renderer in `llvm_ir.py` knows instructions; how a function is entered, where memory lies, what
tells lanes apart and what the code generator can't do stands here. A target takes the row whose
name its triple begins with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tinygrad.base.target import Target


@dataclass(frozen=True)
class Dialect:
    """One kind of target. Templates are filled in by `str.format` with the names in their
    braces."""

    triple: str  # how its triples begin
    head: str  # the line that opens a function; `arguments` are listed where it has them
    attributes: str  # of the function; `lanes` of a group at most
    buffer: str = "ptr"  # a pointer to a buffer
    promise: str = ""  # attributes of buffers
    local: str = "ptr"  # a pointer to LOCAL memory
    tensor: str = ""  # the type of a buffer's descriptor, for the engine that copies boxes of it
    specials: Mapping[str, str] = field(default_factory=dict)  # the intrinsic for each SPECIAL
    barrier: tuple[str, ...] = ()  # instructions
    declared: tuple[str, ...] = ()  # the functions that they call
    exchange: tuple[str, tuple[str, ...]] = ("", ())  # an intrinsic, and its arguments
    flags: str = ""  # of the module, as metadata from number 3 on
    tasks: bool = False  # a function runs many tasks, and is given tables; else one lane
    static_local: int = 0  # bytes of LOCAL memory that a function may declare; beyond, it is lent
    masked_vectors: bool = False  # a masked vector is one instruction
    picks_lanes: bool = False  # an element may have a computed number (PTX: LLVM 22 aborts)
    streams: bool = False  # stores past the cache, which a fence orders
    prefetch: bool = False
    short_index: bool = False  # 32-bit index arithmetic is cheaper, where it suffices


PROCESSOR = Dialect(
    triple="",
    head="define void @{name}(ptr noalias %args, i64 %lo, i64 %hi, ptr noalias %scratch) #0 {{",
    attributes='nounwind "frame-pointer"="none"',
    tasks=True,
    masked_vectors=True,
    picks_lanes=True,
    streams=True,
    prefetch=True,
)

AXES = dict(enumerate("xyz"))
SREG = "llvm.nvvm.read.ptx.sreg"
PTX = Dialect(
    triple="nvptx64",
    head="define ptx_kernel void @{name}({arguments}) #0 {{",
    attributes='nounwind "nvvm.maxntid"="{lanes}"',
    buffer="ptr addrspace(1)",
    promise="noalias align 64",
    local="ptr addrspace(3)",
    tensor='ptr byval([128 x i8]) align 64 "nvvm.grid_constant"',
    specials={"task": f"{SREG}.ctaid.x"}
    | {f"gid{axis}": f"{SREG}.ctaid.{word}" for axis, word in AXES.items()}
    | {f"lid{axis}": f"{SREG}.tid.{word}" for axis, word in AXES.items()},
    barrier=("call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)",),
    declared=("declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32)",),
    # a mask of all lanes, and 31: the exchange is within 32
    exchange=("llvm.nvvm.shfl.sync.bfly.i32", ("i32 -1", "i32 {value}", "i32 {mask}", "i32 31")),
    static_local=48 << 10,
    short_index=True,
)

# Hidden arguments that the runtime could pass to kernels, and that these never use.
UNUSED = (
    *("implicitarg-ptr", "dispatch-ptr", "queue-ptr", "dispatch-id", "heap-ptr", "hostcall-ptr"),
    *("default-queue", "completion-action", "multigrid-sync-arg", "lds-kernel-id"),
)
AMDGPU = Dialect(
    triple="amdgcn",
    head="define amdgpu_kernel void @{name}({arguments}) #0 {{",
    attributes='nounwind "amdgpu-flat-work-group-size"="{lanes},{lanes}" '
    + " ".join(f'"amdgpu-no-{word}"' for word in UNUSED),
    buffer="ptr addrspace(1)",
    promise="noalias align 64",
    local="ptr addrspace(3)",
    specials={"task": f"{SREG}.ctaid.x"}
    | {f"gid{axis}": f"llvm.amdgcn.workgroup.id.{word}" for axis, word in AXES.items()}
    | {f"lid{axis}": f"llvm.amdgcn.workitem.id.{word}" for axis, word in AXES.items()},
    # lanes of a group synchronise, and see what the others wrote
    barrier=(
        'fence syncscope("workgroup") release',
        "call void @llvm.amdgcn.s.barrier()",
        'fence syncscope("workgroup") acquire',
    ),
    declared=("declare void @llvm.amdgcn.s.barrier()",),
    exchange=("llvm.amdgcn.ds.bpermute", ("i32 {place}", "i32 {value}")),
    flags='!llvm.module.flags = !{!3}\n!3 = !{i32 1, !"amdhsa_code_object_version", i32 500}',
    static_local=64 << 10,
    short_index=True,
)

DIALECTS = (PTX, AMDGPU, PROCESSOR)


def dialect_of(target: Target) -> Dialect:
    """The row of a target.

    >>> dialect_of(Target("CPU", triple="x86_64-unknown-linux-gnu")).tasks
    True
    """
    return next(row for row in DIALECTS if target.triple.startswith(row.triple))
