"""The compiler's table of contents: what happens to a scheduled kernel, in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import CompileError
from tinygrad.base.helpers import prod
from tinygrad.base.target import Target
from tinygrad.codegen.access import Store, fill_of
from tinygrad.codegen.addresses import SLACK
from tinygrad.codegen.clipping import arms_of
from tinygrad.codegen.evaluate import Evaluator
from tinygrad.codegen.expand import Expansion
from tinygrad.codegen.faults import after_loops
from tinygrad.codegen.groups import Block, check_meetings, filled_apart
from tinygrad.codegen.interleave import interleaved
from tinygrad.codegen.launch import ends_of, grid_of, open_tasks, run_in_arms
from tinygrad.codegen.leaves import Leaves, Put
from tinygrad.codegen.linear import Program
from tinygrad.codegen.names import kernel_name
from tinygrad.codegen.nesting import NestBuilder
from tinygrad.codegen.numbers.decompose import decompose
from tinygrad.codegen.numbers.words import in_words
from tinygrad.codegen.portions import portions
from tinygrad.codegen.reduce import block_sums
from tinygrad.loops.layout import (
    elements,
    fact,
    fill_order,
    memory_of,
    nodes_of,
    overlaps,
    stores_of,
)
from tinygrad.loops.nest import axes, text
from tinygrad.loops.roles import name_of, own_ranges, role_of, size_of
from tinygrad.uop import Ops, UOp
from tinygrad.uop.instructions import local_layout

Pass = tuple[str, Callable[[UOp, Target], UOp], str]

PASSES: tuple[Pass, ...] = (
    ("decompose", decompose, "Ops that the target lacks are written with those that it has."),
    ("filled apart", filled_apart, "What lanes share is filled before any of them reads it."),
    ("block sums", block_sums, "Long float sums are summed in blocks, so that they stay accurate."),
)
"""Kernel to kernel. Then each phase becomes a loop tree (`loops/nest`) and a linear program."""

LinearPass = tuple[str, Callable[[Sequence[UOp], Target], Sequence[UOp]], str]

LINEAR_PASSES: tuple[LinearPass, ...] = (
    ("faults", after_loops, "Where there are vectors, tests wait for the end of loops."),
    ("words", in_words, "Where integers have 32 bits, 64-bit numbers are pairs."),
    ("in step", interleaved, "Where there are no groups, long chains of instructions go in step."),
)
"""Linear program to linear program."""


@dataclass(frozen=True)
class Phase:
    """One function, run for `tasks` task numbers (or groups of `block` lanes).

    `buffers` are the slots that it takes, in the order of its arguments; `scratch` is the size of
    its LOCALs in bytes. Tasks beyond any of `ends`, which variables set, do nothing.
    """

    name: str
    program: tuple[UOp, ...]
    tasks: tuple[int, int, int]
    block: tuple[int, int, int]
    scratch: int
    buffers: tuple[int, ...]
    nest: str
    ends: tuple[UOp, ...] = ()

    @property
    def tensors(self) -> tuple[tuple[Any, ...], ...]:
        """The buffers that the function sees as tensors, as in `backends/interface`."""
        return tuple(
            (self.buffers.index(node.src[0].arg[0]), node.dtype.itemsize, *node.arg)
            for node in self.program
            if node.op is Ops.TENSOR
        )


@dataclass(frozen=True)
class Lowered:
    """All phases of a kernel, in order. Slots after the kernel's own PARAMs are `temporaries`
    (bytes each), then the device's fault words if there are `faults` (code = position + 1).
    `kernel` is the graph that the nests were built from. `portions`: how often its phases are
    launched, each time for some of the groups."""

    name: str
    colored: str
    kernel: UOp
    phases: tuple[Phase, ...]
    temporaries: tuple[int, ...]
    faults: tuple[tuple[str, str], ...]
    portions: int = 1

    @property
    def instructions(self) -> int:
        """The instructions of a portion."""
        return sum(len(phase.program) for phase in self.phases) // self.portions


def rewrite(kernel: UOp, target: Target) -> UOp:
    """The kernel after every pass."""
    for _, function, _ in PASSES:
        kernel = function(kernel, target)
    return kernel


def lower(kernel: UOp, target: Target) -> Lowered:
    """A scheduled kernel as linear programs."""
    kernel = rewrite(kernel, target)
    faults: dict[tuple[str, str], int] = {}
    made = [_Lowering(part, target, faults).run() for part in portions(kernel, target)]
    if len(made) == 1:
        return made[0]
    phases = tuple(phase for part in made for phase in part.phases)
    name, painted = kernel_name(kernel)
    return Lowered(name, painted, kernel, phases, (), tuple(faults), len(made))


class _Lowering:
    def __init__(self, kernel: UOp, target: Target, faults: dict[tuple[str, str], int]) -> None:
        self.kernel, self.target = kernel, target
        nodes = nodes_of(kernel)
        self.staged = [n for n in nodes if memory_of(n) == "GLOBAL"]
        slots = [n.arg[0] for n in nodes if n.op is Ops.PARAM]
        first = max(slots, default=-1) + 1
        self.sizes = {s: elements(s) + SLACK for s in self.staged}
        self.slots = {
            s: UOp(Ops.PARAM, s.dtype, arg=(first + i, self.sizes[s]))
            for i, s in enumerate(self.staged)
        }
        self.block = Block(kernel, target)
        self.fault: UOp | None = None
        if any(n.op is Ops.CHECK for n in nodes):
            self.fault = UOp(Ops.PARAM, dtypes.int64, arg=(first + len(self.staged), 8))
        self.faults = faults
        self.name, self.colored = kernel_name(kernel)

    def run(self) -> Lowered:
        phases = []
        for stage in self.staged:
            leaves = {"fill": Leaves(fill_order(stage), [fill_of(stage)])}
            phases.append(self._phase(f"_{name_of(stage)}", leaves, False))
        leaves = {kind: _leaves_of(stores) for kind, stores in stores_of(self.kernel).items()}
        stream = self.kernel.src[0].arg == "nontemporal"
        phases.append(self._phase("", leaves, stream))
        temporaries = tuple(self.sizes[s] * s.dtype.itemsize for s in self.staged)
        faults = tuple(self.faults)
        return Lowered(self.name, self.colored, self.kernel, tuple(phases), temporaries, faults)

    def _phase(self, suffix: str, leaves: dict[str, Leaves], stream: bool) -> Phase:
        (kind, first), *others = leaves.items()
        tasks = [r for r in first.own if role_of(r) == "PARALLEL"]
        count = prod(size_of(r) for r in tasks)
        arms = arms_of(first) if count > 1 and not others else None
        stores = [store for each in leaves.values() for store in each.stores]
        stores += [] if arms is None else arms.whole.stores
        evaluator = Evaluator(
            self.target, self.slots, self.block, self.fault, self.faults, _written(stores)
        )
        for name, turns, *inside in fact(self.kernel, "prefetch"):
            evaluator.access.ahead[name] = turns, inside
        expansion, program = Expansion(evaluator), evaluator.program
        grid = grid_of(count, self.target) if self.target.has_groups else (count, 1, 1)
        open_tasks(expansion, tasks, grid, count)
        padded = kind == "fill" and not overlaps(stores[0].memory)

        def run(first: Leaves) -> str:
            nests = {**leaves, kind: first}
            nest = NestBuilder(self.kernel).build(
                (each.own, each.values, kind) for kind, each in nests.items()
            )
            bodies = {
                kind: Put(evaluator, each, padded=padded, nontemporal=stream)
                for kind, each in nests.items()
            }
            expansion.run(nest, bodies)
            return text(nest)

        lines = run(first) if arms is None else run_in_arms(expansion, arms, run, first)
        listed = self._listed(program)
        vars(evaluator).clear()  # its parts know it: they would wait for the garbage collector
        scratch = self._scratch(listed)
        buffers = tuple(n.arg[0] for n in listed if n.op is Ops.PARAM)
        return Phase(
            self.name + suffix,
            tuple(listed),
            grid,
            self.block.shape,
            scratch,
            buffers,
            f"{kind} over {axes(first.own)}\n{lines}",
            ends_of(tasks),
        )

    def _listed(self, program: Program) -> Sequence[UOp]:
        """The program in order, after every pass."""
        while program.scope is not program.root:
            program.close()
        listed: Sequence[UOp] = program.layout()
        if self.target.has_groups:
            check_meetings(listed)
        for _, function, _ in LINEAR_PASSES:
            listed = function(listed, self.target)
        return listed

    def _scratch(self, program: Sequence[UOp]) -> int:
        """The bytes of LOCAL memory of a task, or of a group; CompileError if a group doesn't have
        that much."""
        scratch, most = local_layout(program)[1], self.target.local_memory
        if self.target.has_groups and scratch > most:
            room = f"{scratch:,} bytes, on {self.target.device} they can {most:,}"
            raise CompileError(f"[lower] {self.name}: lanes share {room}; legal is NOOPT=1")
        return scratch


def _leaves_of(stores: Sequence[UOp]) -> Leaves:
    """STOREs that have the same loops."""
    pairs = (store.src[:2] for store in stores)
    made = [Store(place.src[0], place.src[1], value) for place, value in pairs]
    return Leaves(own_ranges(stores[0]), made)


def _written(stores: list[Store]) -> frozenset[UOp]:
    """Nodes that read what the same kernel stores: their values must not be kept. A REDUCE is: it
    has its place in the nest, before the stores that follow it."""
    targets = {memory for memory, _, _ in stores}
    order = UOp.sink(*[root for _, *values in stores for root in values]).toposort()[:-1]
    found = {node for node in order if node.op is Ops.INDEX and node.src[0] in targets}
    for node in order if found else ():
        if node.op is not Ops.REDUCE and not found.isdisjoint(node.src):
            found.add(node)
    return frozenset(found)
