"""What kernels are called, and the colours in which their loops are shown."""

from __future__ import annotations

from tinygrad.base.helpers import colored
from tinygrad.loops.layout import nodes_of
from tinygrad.loops.reads import sums_of
from tinygrad.loops.roles import name_of, own_ranges, role_of, size_of
from tinygrad.uop import Ops, UOp

ORDER = ("PARALLEL", "LANE", "LOOP", "ORDERED", "GROUP", "SPREAD", "UNROLL", "VECTOR", "TILE")
COLORS = {"PARALLEL": "blue", "LANE": "cyan", "GROUP": "green"}


def kernel_name(kernel: UOp) -> tuple[str, str]:
    """`E_..` or, with a reduction, `r_..`, and the sizes of the axes; and the same in colours. A
    bundle is named after its first kernel."""
    if kernel.op is Ops.BUNDLE:
        first, colors = kernel_name(kernel.src[0])
        return bundle_name(kernel, first), bundle_name(kernel, colors)
    own = own_ranges(kernel.src[0])
    reduced = [r for n in sums_of(nodes_of(kernel)) for r in own_ranges(n)]
    axes = [(r, False) for r in own] + [(r, True) for r in dict.fromkeys(reduced)]
    axes.sort(key=lambda axis: (ORDER.index(role_of(axis[0])), axis[1]))
    several = [axis for axis in axes if size_of(axis[0]) > 1] or axes[:1]
    plain = colors = "r" if reduced else "E"
    for loop, is_reduced in several:
        size = str(size_of(loop))
        plain += f"_{size}"
        colors += f"_{colored(size, _color(loop, is_reduced))}"
    return plain, colors


def bundle_name(bundle: UOp, first: str) -> str:
    """The name of a bundle whose first kernel has this name: how many kernels it runs, and that
    name."""
    return f"b{len(bundle.arg)}_{first}"


def axis_colors(kernel: UOp) -> dict[str, str]:
    """The colour of each loop by name: blue and cyan run in parallel, white and red sequentially,
    yellow and magenta are copies and lanes; red and magenta are reduced."""
    nodes = nodes_of(kernel)
    reduced = {r for n in sums_of(nodes) for r in own_ranges(n)}
    return {name_of(r): _color(r, r in reduced) for r in nodes if r.op is Ops.RANGE}


def _color(loop: UOp, is_reduced: bool) -> str:
    role = role_of(loop)
    if role in COLORS:
        return COLORS[role]
    if role in ("LOOP", "ORDERED"):
        return "red" if is_reduced else "white"
    return "magenta" if is_reduced else "yellow"
